import { HomeregionError } from '../../domain/errors.ts'
import { fail, type Observation, pass, unknown, type Verdict } from '../../domain/evidence.ts'
import type { Fence, FenceCause, FenceKind, FenceNote, FenceNotes, FenceStep } from '../../domain/fence.ts'
import { alreadyStood, newestWish, requireSameWish } from '../../domain/fence-wish.ts'
import type { FaultPoint } from '../../domain/ports.ts'

/** What a call answered, as far as it matters: whether it did what it was for, and its words. */
export type HookAnswer = { readonly ok: boolean; readonly said: string }

/** The three calls of a fence that somebody else's command or service carries out. None throws for an answer it does not like. */
export type FenceCalls = {
  readonly kind: Extract<FenceKind, 'exec' | 'http'>
  /** Where the calls are made: `this machine`, or the address. */
  readonly place: string
  readonly shown: { readonly apply: string; readonly verify: string; readonly lift: string }
  apply(cause: FenceCause): Promise<HookAnswer>
  lift(cause: FenceCause): Promise<HookAnswer>
  /** `pass`: it stands; `fail`: it does not; else nobody knows. */
  verify(): Promise<{ readonly verdict: Verdict; readonly said: string }>
}

/**
 * A fence whose work is done elsewhere. We cannot see what a call does, so the note goes before it: whatever dies on the way, the next command
 * knows that it was begun; and no answer of `apply` or `lift` counts, only what `verify` says afterwards.
 */
export function createNotedFence(
  fence: { readonly region: string; readonly name: string },
  calls: FenceCalls,
  notes: FenceNotes,
  fault: FaultPoint,
  now: () => string,
): Fence {
  const { region, name } = fence
  const observer = `${region} fence ${name}`

  const apply = async (cause: FenceCause): Promise<readonly string[]> => {
    const known = await notes.read()
    const at = now()
    const wish = newestWish(known, cause, Date.parse(at))
    const note = { ...wish, since: known?.since ?? at, former: known?.former ?? null }
    await notes.write({ ...note, state: 'applying' })
    const lines = await carryOut('apply', cause)
    // Whoever asked for it meanwhile keeps the wish on record.
    const newest = await notes.read()
    await notes.write({ ...(newest !== null && newest.asked > wish.asked ? newest : note), state: 'applied' })
    await fault(`fence:${calls.kind}:done`)
    return [...lines, ...alreadyStood(known, cause)]
  }

  const lift = async (cause: FenceCause, asked: number | null): Promise<readonly string[]> => {
    const known = await notes.read()
    requireSameWish(fence, known, asked)
    const note: FenceNote = {
      state: 'lifting',
      cause,
      asked: known?.asked ?? 0,
      since: known?.since ?? now(),
      former: known?.former ?? null,
    }
    await notes.write(note)
    const lines = await carryOut('lift', cause)
    requireSameWish(fence, await notes.read(), note.asked)
    await notes.write(null)
    await fault(`fence:${calls.kind}:done`)
    return lines
  }

  const carryOut = async (direction: 'apply' | 'lift', cause: FenceCause): Promise<readonly string[]> => {
    await fault(`fence:${calls.kind}:noted`)
    const answer = await calls[direction](cause)
    await fault(`fence:${calls.kind}:called`)
    const seen = await calls.verify()
    const wanted: Verdict = direction === 'apply' ? 'pass' : 'fail'
    if (!answer.ok || seen.verdict !== wanted) throw failed(direction, answer, seen)
    return [`${calls.place}: ${seen.said}`]
  }

  const failed = (direction: 'apply' | 'lift', answer: HookAnswer, seen: { verdict: Verdict; said: string }) => {
    const stands = {
      pass: 'its own verify says that it stands',
      fail: 'its own verify says that it does not stand',
      unknown: 'whether it stands is not known',
    }
    return new HomeregionError(
      'fence-failed',
      {
        fact: answer.ok
          ? `fence ${name} of ${region}: ${direction} ended well, but verify did not confirm it: ${seen.said}`
          : `fence ${name} of ${region}: ${direction} failed: ${answer.said}`,
        state: `${stands[seen.verdict]} (${seen.said}); it is on record as ${direction === 'apply' ? 'applying' : 'lifting'}.`,
        next: `homeregion fence ${direction} ${region} --fence ${name} --reason …`,
      },
      { fields: { region, fence: name, verdict: seen.verdict } },
    )
  }

  return {
    region,
    name,
    kind: calls.kind,
    plan: direction =>
      Promise.resolve<readonly FenceStep[]>([
        {
          place: calls.place,
          text: calls.shown[direction],
          why: direction === 'apply' ? 'Closes the region by a way of your own.' : 'Opens it again.',
        },
        { place: calls.place, text: calls.shown.verify, why: 'Only what this says counts, whatever the call before answered.' },
      ]),
    apply,
    lift,
    verify: async (): Promise<readonly Observation[]> => {
      const { verdict, said } = await calls.verify()
      return [{ pass, fail, unknown }[verdict](observer, `${calls.shown.verify} says that it stands`, said)]
    },
    status: async () => {
      const note = await notes.read()
      if (note === null) return { state: 'lifted', since: null, cause: null, asked: null, holds: [] }
      const { verdict, said } = await calls.verify()
      const holds = [verdict === 'pass' ? said : `${verdict === 'fail' ? 'NOT STANDING' : 'not known'}: ${said}`]
      return { state: note.state, since: note.since, cause: note.cause, asked: note.asked, holds }
    },
    close: () => Promise.resolve(),
  }
}
