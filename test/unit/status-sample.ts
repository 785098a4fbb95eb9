import type { Status } from '../../src/cli/render/status.ts'

/** A service of which there is nothing to say. */
export const QUIET_STATUS: Status = {
  service: 'billing',
  asOf: 'now',
  counts: [],
  keys: [],
  openRuns: [],
  history: [],
  leases: [],
  regions: [],
  darkAfterMs: 30_000,
  exiles: [],
  approvals: [],
  consents: [],
  drills: [],
  unfinished: [],
  fences: [],
  late: [],
  degraded: false,
}
