/** One verb of a read-only fence in a process of its own, which a fault point may kill: `fence-process.ts apply|lift`, its configuration on stdin. */
import { readFileSync } from 'node:fs'
import { createReadOnlyFence } from '../../src/adapters/postgres-region/fences/read-only.ts'
import { createFaultPoint } from '../../src/adapters/system/fault-point.ts'
import type { Config, RegionConfig } from '../../src/domain/config.ts'
import { liftStanding } from '../rig/lift-standing.ts'

const { config, password } = JSON.parse(readFileSync(0, 'utf8')) as { config: Config; password: string }
const region = config.regions[0] as RegionConfig
const fault = createFaultPoint(process.env.HOMEREGION_FAULT)
const fence = createReadOnlyFence(
  region,
  { name: 'read-only', kind: 'read-only' },
  config,
  { read: () => Promise.resolve(password) },
  fault,
)
const cause = { reason: 'a test', by: 'test', runId: null }
if (process.argv[2] === 'apply') await fence.apply(cause)
else await liftStanding(fence, cause)
await fence.close()
