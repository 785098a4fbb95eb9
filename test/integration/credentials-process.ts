import { createFaultPoint } from '../../src/adapters/system/fault-point.ts'
import type { Config, RegionConfig } from '../../src/domain/config.ts'
import { liftStanding } from '../rig/lift-standing.ts'
import { CAUSE, fenceOf } from './credentials-fence-of.ts'

/** Applies or lifts the credentials fence of SCENE: started by a test, which kills it on the way. */
const scene = JSON.parse(process.env['SCENE'] ?? '{}') as { region: RegionConfig; config: Config; verb: 'apply' | 'lift' }
const fence = fenceOf(scene.region, scene.config, process.env, createFaultPoint(process.env['HOMEREGION_FAULT']))
try {
  await (scene.verb === 'apply' ? fence.apply(CAUSE) : liftStanding(fence, CAUSE))
} finally {
  await fence.close()
}
