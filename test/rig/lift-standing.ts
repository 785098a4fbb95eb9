import type { Fence, FenceCause } from '../../src/domain/fence.ts'

/** Lifts a fence for whatever it stands for now. */
export async function liftStanding(fence: Fence, cause: FenceCause): Promise<readonly string[]> {
  return await fence.lift(cause, (await fence.status()).asked)
}
