import { Chalk } from 'chalk'
import { expect, test } from 'vitest'
import { createProgress } from '../../src/cli/render/progress.ts'
import { type ErrorCode, HomeregionError } from '../../src/domain/errors.ts'
import type { JournalChange, RunLease } from '../../src/domain/journal.ts'
import type { OwnershipRecord } from '../../src/domain/ownership.ts'
import type { ControlPlane, RegionDatabase, RegionStream } from '../../src/domain/ports.ts'
import type { Runbook } from '../../src/domain/runbook.ts'
import type { RunEvent } from '../../src/engine/context.ts'
import { beforeCommit } from '../../src/engine/forced-before.ts'
import type { ForcedEnd } from '../../src/engine/forced-move.ts'
import { createForcedMove } from '../../src/engine/forced-opening.ts'
import { createRunJournal } from '../../src/engine/run-journal.ts'
import { createFakeEngine, createManualClock, only, step } from './engine-fixture.ts'

const MOVE = { key: 'k', source: 'a', target: 'b', epoch: 1, seq: 1 }
const SAID = { runId: 'run-1', breakGlass: false, byStarter: false, at: 'now' }
const lost = (code: ErrorCode) => new HomeregionError(code, { fact: `the answer of ${code}` })

type Script = {
  /** What the hand-over ends with. */
  readonly error: unknown
  /** Where the request that was lost is by the time the run takes a new token: nowhere, or committed just before it. */
  readonly arrivesLate?: boolean
  readonly silent?: boolean
  /** Another policy of approvals comes into force while the commit is under way: one key is too many by it. */
  readonly stricter?: boolean
  readonly rejected?: boolean
  /** At a terminal; with `stricter` from the start. */
  readonly watched?: boolean
}

/** A run with a lease withheld that comes to hand its only key over, and whose request for it ends as the script says. */
async function handOver({ error, arrivesLate = false, silent = false, stricter = false, rejected = false, watched = false }: Script) {
  let sent = watched
  const told: RunEvent[] = []
  const done: string[] = []
  let home = 'a'
  let token = 1
  const ask = async <T>(answer: () => T): Promise<T> => {
    if (silent) throw lost('control-plane-unreachable')
    return await Promise.resolve(answer())
  }
  const lease = (): RunLease => ({ runId: 'run-1', token, leaseMs: 1000 }) as unknown as RunLease
  const record = () =>
    ({ key: 'k', homeRegion: home, state: 'ACTIVE', epoch: home === 'a' ? 1 : 2, seq: 2, runId: 'run-1' }) as unknown as OwnershipRecord
  const controlPlane = only<ControlPlane>({
    ownership: async () => await ask(() => [record()]),
    retakeRun: async () =>
      await ask(() => {
        if (arrivesLate) home = 'b'
        token += 1
        return lease()
      }),
    renew: () => Promise.resolve(),
    release: () => Promise.resolve(),
    leaseStates: async () =>
      await ask(() => [
        {
          ...{ region: 'a', generation: 1, grantedTo: 'x', leftMs: -1, durationMs: 1, marginMs: 1, stops: true, grantsKnown: true },
          withheldBy: done.includes('lease released') ? null : 'run-1',
        },
      ]),
    approvalPolicy: () =>
      Promise.resolve({ approvers: ['bob'], needed: 1, aboveKeys: sent && stricter ? 0 : 9, since: 'then', starter: 'ada' }),
    approvals: () => Promise.resolve(sent && rejected ? [{ ...SAID, verdict: 'rejected' as const, approver: 'bob', reason: 'wait' }] : []),
    releaseLease: async () => await ask(() => void done.push('lease released')),
    commit: async (_lease: RunLease, change: JournalChange) =>
      await ask(() => {
        if (change.runState !== undefined) done.push(`run ${change.runState}`)
        return []
      }),
  })
  const region = only<RegionDatabase>({
    region: 'b',
    openMany: keys => {
      done.push('target opened')
      return Promise.resolve(
        keys.map(k => ({ ...k, homeRegion: 'b', state: 'ACTIVE' as const, token, barrierEventId: null, writable: true })),
      )
    },
  })
  const engine = {
    ...createFakeEngine([region], {}, createManualClock()),
    controlPlane,
    stream: () => only<RegionStream>({ announce: () => Promise.resolve() }),
    fault: (name: string) => {
      if (name !== 'forced:looking') return Promise.resolve()
      sent = true
      return Promise.reject(error instanceof Error ? error : new Error('none'))
    },
  }
  const activate = step('activate', [], { action: { kind: 'activate' } })
  const runbook = {
    name: 'failover',
    intent: 'failover',
    title: '',
    steps: [step('approve', ['approved']), activate],
  } as unknown as Runbook
  const plan = { id: 'plan', pinned: { runbook, text: '', sha256: '', origin: '' }, moves: [MOVE], alreadyThere: [], dropped: [] }
  const watching = {
    watches: watched,
    report: (event: RunEvent) => void told.push(event),
    // Left after the first look.
    interrupted: () => told.some(event => event.type === 'gate-waiting'),
  }
  const parts = { engine, operator: { ...engine.operator, ...watching }, settings: { policy: {}, lease: null, external: [] } as never }
  const move = createForcedMove(parts, createRunJournal(engine, lease()), runbook, {
    ...{ plan, fence: 'lease-over' as const, acknowledgement: { kind: 'any' as const }, attestation: null, doneSteps: new Set<string>() },
    ...{ keys: [{ key: 'k', epoch: 1 }], observeMs: 0, automatic: false },
  })
  const end = await beforeCommit(move).then(
    (reached: ForcedEnd) => ({ code: reached.state, state: reached.data }),
    (refused: unknown) => {
      if (!(refused instanceof HomeregionError)) throw refused
      return { code: refused.code, state: refused.text.state ?? '' }
    },
  )
  return { end, done, told }
}

test('a commit whose answer was lost, and that arrives before the run has a new token, takes the run forward: nothing is released', async () => {
  const { end, done } = await handOver({ error: lost('outcome-unknown'), arrivesLate: true })
  expect(end.code).toBe('DONE')
  expect(done).toEqual(['target opened', 'run DONE'])
})

test('a commit that never arrived is refused by the new token, and what the run had put up is taken down', async () => {
  const { end, done } = await handOver({ error: lost('outcome-unknown') })
  expect(end).toEqual({
    code: 'rolled-back',
    state: 'Nothing was handed over: a still owns the keys on record. Its lease may be granted again.',
  })
  expect(done).toEqual(['lease released', 'run REFUSED'])
})

test('while the authority is silent nothing is opened and nothing released, and whether the commit was sent is told as it is', async () => {
  const sent = await handOver({ error: lost('outcome-unknown'), silent: true })
  expect(sent.end.code).toBe('outcome-unknown')
  expect(sent.end.state).toMatch(
    /^Whether the keys were handed to b is not known; b's boundary was not opened\. What keeps a from writing was left/,
  )
  const looked = await handOver({ error: lost('control-plane-unreachable'), silent: true })
  expect(looked.end.code).toBe('outcome-unknown')
  expect(looked.end.state).toMatch(/^Nothing was handed over: the commit was not sent\. /)
  expect([...sent.done, ...looked.done]).toEqual([])
})

test('a commit that is refused for want of approvals leaves the run waiting for them, with what it had put up', async () => {
  const { end, done } = await handOver({ error: lost('approval-refused'), stricter: true })
  expect(end).toEqual({
    code: 'OPEN',
    state: 'Nothing was handed over; a still owns the keys on record. What keeps it from writing was left as it is.',
  })
  expect(done).toEqual([])
  // A rejection is an answer, and ends it.
  const rejected = await handOver({ error: lost('approval-refused'), stricter: true, rejected: true })
  expect(rejected.end.code).toBe('approval-refused')
  expect(rejected.done).toEqual(['lease released', 'run REFUSED'])
})

test('who watches a run that waits is told whose turn it is, in a line that stays and one that changes, each with room for it', async () => {
  const { told, end } = await handOver({ error: null, stricter: true, watched: true })
  expect(end.code).toBe('OPEN')
  const shown: string[] = []
  const printer = {
    style: new Chalk({ level: 0 }),
    isTerminal: true,
    columns: 80,
    write: () => undefined,
    line: (text: string) => void shown.push(text),
  }
  const live = { show: (text: string) => shown.push(text) > 0, clear: () => undefined }
  const progress = createProgress(printer, live)
  for (const event of told) if (event.type === 'note' || event.type === 'gate-waiting') progress.report(event)
  expect(shown).toEqual([
    'note: waits for approval (bob); they type: homeregion approve run-1',
    expect.stringMatching(/^approve: waits for approval 0 of 1 \(bob\) \(.* left\)$/),
  ])
})
