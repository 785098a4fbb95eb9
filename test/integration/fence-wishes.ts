import { expect } from 'vitest'
import type { HomeregionError } from '../../src/domain/errors.ts'
import type { Fence } from '../../src/domain/fence.ts'
import { liftStanding } from '../rig/lift-standing.ts'
import { codedError } from '../unit/coded-error.ts'

const RUN = { reason: 'step seal of run r', by: 'runner', runId: 'r' }
const ANN = { reason: 'the night', by: 'ann@laptop', runId: null }
const BOB = { reason: 'the second incident', by: 'bob@desk', runId: null }

/** The record of a fence keeps the newest wish, a run's never hides a person's, and a lift ends the wish that it was allowed for alone. */
export async function keepsWishesApart(fence: Fence): Promise<void> {
  const wish = async () => {
    const { asked, cause } = await fence.status()
    return { asked: asked ?? 0, cause }
  }
  const refused = async (asked: number | null): Promise<HomeregionError> => await codedError(async () => await fence.lift(ANN, asked))
  expect((await fence.apply(RUN)).join('\n')).not.toContain('stood already')
  const first = await wish()
  expect(first.cause).toEqual(RUN)
  expect((await fence.apply(ANN)).join('\n')).toMatch(
    /stood already, since .*Z, for runner \(step seal of run r\); it stands for ann@laptop \(the night\) too/,
  )
  const second = await wish()
  expect(second.cause).toEqual(ANN)
  await fence.apply(RUN)
  const third = await wish()
  expect(third.cause).toEqual(ANN)
  await fence.apply(BOB)
  const fourth = await wish()
  expect(fourth.cause).toEqual(BOB)
  const numbers = [first, second, third, fourth].map(w => w.asked)
  expect([...new Set(numbers)].sort((a, b) => a - b)).toEqual(numbers)
  for (const stale of [null, first.asked, third.asked]) {
    const error = await refused(stale)
    expect(error.code).toBe('fence-asked-again')
    expect(error.text.fact).toMatch(/asked for again at .*Z; it stands for bob@desk \(the second incident\)/)
    expect((await fence.status()).state).toBe('applied')
  }
  await liftStanding(fence, ANN)
  await fence.apply(RUN)
  // A wish of before a lift is not one of after it.
  expect((await refused(fourth.asked)).code).toBe('fence-asked-again')
  await liftStanding(fence, ANN)
  expect(await fence.status()).toMatchObject({ state: 'lifted', cause: null, asked: null })
}
