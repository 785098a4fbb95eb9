import type { Fence, FenceStep } from '../../domain/fence.ts'
import { coded, inOrder } from '../../engine/region-fences.ts'

/** `problem`: the plan could not be made (the region does not answer); the fence will be tried all the same. */
export type FencePlan = {
  readonly fence: string
  readonly kind: Fence['kind']
  readonly steps: readonly FenceStep[]
  readonly problem: string | null
}

/** Made side by side: at night every second of a region that does not answer counts once. */
export async function plansOf(fences: readonly Fence[], direction: 'apply' | 'lift'): Promise<readonly FencePlan[]> {
  return await Promise.all(
    inOrder(fences, direction).map(async fence => {
      const of = { fence: fence.name, kind: fence.kind }
      try {
        return { ...of, steps: await fence.plan(direction), problem: null }
      } catch (error) {
        return { ...of, steps: [], problem: coded(error).text.fact }
      }
    }),
  )
}
