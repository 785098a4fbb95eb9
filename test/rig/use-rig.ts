import { afterAll, beforeAll, inject } from 'vitest'
import { attachRig, type Rig } from './rig.ts'

/** Files that run at the same time have different numbers, from 1 to the number of workers. */
const WORKER = Number(process.env['VITEST_POOL_ID'])

/**
 * The worker's rig for the tests of one file, with everything running at its start whatever an earlier file killed. Data of
 * earlier files stays: take a key of your own.
 */
export function useRig(): { readonly current: Rig } {
  let rig: Rig | undefined
  beforeAll(async () => {
    const dir = inject('rigDirs')[WORKER - 1]
    if (dir === undefined) throw new Error(`worker ${WORKER} has no rig`)
    rig = await attachRig({ dir })
  })
  afterAll(async () => {
    await rig?.stop()
  })
  return {
    get current() {
      if (rig === undefined) throw new Error('the rig runs inside tests and hooks only')
      return rig
    },
  }
}
