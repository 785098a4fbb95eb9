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
  agents: [],
  exiles: [],
  approvals: [],
  consents: [],
  drills: [],
  fences: [],
  late: [],
  degraded: false,
}
