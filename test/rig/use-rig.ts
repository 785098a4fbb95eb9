import { afterAll, beforeAll, inject } from 'vitest'
import { attachRig, type Rig } from './rig.ts'

/**
 * The project's rig for the tests of one file, with everything running at its start whatever an earlier file killed. Data of
 * earlier files stays: take a key of your own.
 */
export function useRig(): { readonly current: Rig } {
  let rig: Rig | undefined
  beforeAll(async () => {
    rig = await attachRig({ dir: inject('rigDir') })
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
