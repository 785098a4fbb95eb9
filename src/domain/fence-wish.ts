import { HomeregionError } from './errors.ts'
import type { Fence, FenceCause, FenceState, FenceStatus } from './fence.ts'

/**
 * Each time a fence is asked for is a wish of its own, even where it stands already. `asked` counts them: microseconds since 1970 at which it was
 * last asked for, and always more than before, so that no two wishes share a number, not even those before and after a lift.
 */
export type FenceWish = { readonly asked: number; readonly cause: FenceCause }

type Standing = FenceWish & { readonly state: Exclude<FenceState, 'unknown' | 'lifted'> }

/** The record keeps the newest wish; a run's never hides that of a person who still wants it. */
export function newestWish(known: Standing | null, cause: FenceCause, nowMs: number): FenceWish {
  const asked = Math.max((known?.asked ?? 0) + 1, nowMs * 1000)
  const kept = known !== null && known.cause.runId === null && cause.runId !== null && known.state !== 'lifting'
  return { asked, cause: kept ? known.cause : cause }
}

/** For whom it stood when it was asked for; nothing where it did not. */
export function alreadyStood(before: Pick<FenceStatus, 'since' | 'cause'> | null, cause: FenceCause): readonly string[] {
  if (before?.cause == null) return []
  return [`it stood already, since ${before.since ?? '?'}, for ${wisher(before.cause)}; it stands for ${wisher(cause)} too now`]
}

/** @throws `fence-asked-again` */
export function requireSameWish(fence: Pick<Fence, 'region' | 'name'>, known: FenceWish | null, asked: number | null): void {
  if (known !== null && known.asked !== asked) throw askedAgain(fence, known)
}

export function askedAgain({ region, name }: Pick<Fence, 'region' | 'name'>, wish: FenceWish): HomeregionError {
  const when = wish.asked > 0 ? ` at ${new Date(Math.floor(wish.asked / 1000)).toISOString()}` : ''
  return new HomeregionError(
    'fence-asked-again',
    {
      fact: `fence ${name} of ${region} was asked for again${when}; it stands for ${wisher(wish.cause)}`,
      state: 'It was not lifted.',
      next: `homeregion fence status ${region}`,
    },
    { fields: { region, fence: name, asked: wish.asked, by: wish.cause.by, reason: wish.cause.reason, runId: wish.cause.runId } },
  )
}

export function wisher({ by, reason, runId }: FenceCause): string {
  return `${by} (${reason}${runId === null || reason.includes(runId) ? '' : `, run ${runId}`})`
}
