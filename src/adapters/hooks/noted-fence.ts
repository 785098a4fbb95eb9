import { HomeregionError } from '../../domain/errors.ts'
import { fail, type Observation, pass, unknown, type Verdict } from '../../domain/evidence.ts'
import type { Fence, FenceCause, FenceKind, FenceNotes, FenceStep } from '../../domain/fence.ts'
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

  const change = async (direction: 'apply' | 'lift', cause: FenceCause): Promise<readonly string[]> => {
    const known = await notes.read()
    const state = direction === 'apply' ? 'applying' : 'lifting'
    // An apply that is repeated keeps its first cause: who fenced the region, and when.
    const first = direction === 'apply' && known !== null
    await notes.write({ state, cause: first ? known.cause : cause, since: first ? known.since : now(), former: known?.former ?? null })
    await fault(`fence:${calls.kind}:noted`)
    const answer = await calls[direction](cause)
    await fault(`fence:${calls.kind}:called`)
    const seen = await calls.verify()
    const wanted: Verdict = direction === 'apply' ? 'pass' : 'fail'
    if (!answer.ok || seen.verdict !== wanted) throw failed(direction, answer, seen)
    if (direction === 'lift') await notes.write(null)
    else await notes.write({ state: 'applied', cause: known?.cause ?? cause, since: known?.since ?? now(), former: known?.former ?? null })
    await fault(`fence:${calls.kind}:done`)
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
    apply: async cause => await change('apply', cause),
    lift: async cause => await change('lift', cause),
    verify: async (): Promise<readonly Observation[]> => {
      const { verdict, said } = await calls.verify()
      return [{ pass, fail, unknown }[verdict](observer, `${calls.shown.verify} says that it stands`, said)]
    },
    status: async () => {
      const note = await notes.read()
      if (note === null) return { state: 'lifted', since: null, cause: null, holds: [] }
      const { verdict, said } = await calls.verify()
      const holds = [verdict === 'pass' ? said : `${verdict === 'fail' ? 'NOT STANDING' : 'not known'}: ${said}`]
      return { state: note.state, since: note.since, cause: note.cause, holds }
    },
    close: () => Promise.resolve(),
  }
}
