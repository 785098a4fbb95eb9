import { expect, test } from 'vitest'
import { createReapply } from '../../src/adapters/hooks/reapply-command.ts'
import type { Json } from '../../src/domain/evidence.ts'
import type { ForcedFailover, ReconcileDecision, ReconcileItem } from '../../src/domain/failover.ts'
import type { ControlPlane } from '../../src/domain/ports.ts'
import type { Reapply } from '../../src/domain/recovery.ts'
import { chosen, decide, partDecided, type ReconcileParts } from '../../src/engine/reconcile.ts'
import { codedError } from './coded-error.ts'

const FAILOVER = { runId: 'run-1', source: 'region-a' } as ForcedFailover
const version = (aggregateId: string, aggregateVersion: number): Json => ({ aggregateType: 'order', aggregateId, aggregateVersion })

function item(id: string, key: string, decision: ReconcileDecision | null = null, content: Json = null): ReconcileItem {
  return {
    ...{ runId: 'run-1', id, key, kind: 'event', subject: id, content, foundAt: '2026-03-01T03:00:00.000Z', decision },
    ...{ reason: decision, decidedAt: decision && '2026-03-01T04:00:00.000Z', decidedBy: decision && 'ada' },
  }
}

/** A control plane with these items; what is decided goes into `decided`. */
function list(items: readonly ReconcileItem[], reapply: Reapply | null = null) {
  const decided: string[] = []
  const controlPlane = {
    ownership: () => Promise.resolve([]),
    reconcileItems: (_: string, filter: { key?: string; id?: string; undecided?: boolean }) =>
      Promise.resolve(
        items.filter(
          i =>
            (filter.key === undefined || i.key === filter.key) &&
            (filter.id === undefined || i.id === filter.id) &&
            (filter.undecided !== true || i.decision === null),
        ),
      ),
    decideReconcileItem: (_: string, id: string, decision: ReconcileDecision, reason: string) => {
      decided.push(id)
      return Promise.resolve({ ...item(id, 'k', decision), reason })
    },
  } as unknown as ControlPlane
  const parts = { controlPlane, reapply, fault: () => Promise.resolve() } as unknown as ReconcileParts
  return { decided, controlPlane, parts }
}

test('every key that was named is decided, one that has nothing left is said, and one that is not on the list is refused', async () => {
  const { controlPlane } = list([item('1', 'a'), item('2', 'b'), item('3', 'b', 'dropped'), item('4', 'c', 'dropped')])
  const found = await chosen(controlPlane, 'run-1', { keys: ['b', 'a', 'c'] })
  expect(found.items.map(i => i.id)).toEqual(['1', '2'])
  expect(found.settled).toEqual(['c'])
  expect((await chosen(controlPlane, 'run-1', { all: true })).items.map(i => i.id)).toEqual(['1', '2'])
  expect(await codedError(() => chosen(controlPlane, 'run-1', { keys: ['a', 'nobody'] }))).toMatchObject({
    code: 'unknown-key',
    exit: 'refused',
  })
})

test('the versions of an aggregate are in order, whatever is listed between them', async () => {
  const items = [item('1', 'a', null, version('x', 2)), item('2', 'a', null, version('y', 1)), item('3', 'a', null, version('x', 1))]
  const { items: ordered } = await chosen(list(items).controlPlane, 'run-1', { all: true })
  expect(ordered.map(i => i.id)).toEqual(['3', '1', '2'])
})

test('all is looked at before anything is decided: another decision refuses all of it, the same one is fine', async () => {
  const items = [item('1', 'a'), item('2', 'a', 'exported'), item('3', 'a')]
  const { parts } = list(items)
  const refused = await codedError(async () => await Promise.resolve(partDecided(parts, 'run-1', items, 'dropped')))
  expect(refused).toMatchObject({ code: 'epoch-moved' })
  expect(refused.text.fact).toBe('1 of 3 items were decided otherwise before: 2 was exported by ada at 2026-03-01T04:00:00.000Z')
  expect(refused.text.state).toContain('Nothing was decided')
  const parted = partDecided(parts, 'run-1', items, 'exported')
  expect([parted.open.map(i => i.id), parted.before.map(i => i.id)]).toEqual([['1', '3'], ['2']])
})

test('a command that fails leaves its outcome unknown, says how far it came, and its words act on no screen', async () => {
  const script = 'cat > /dev/null; test "$HOMEREGION_ITEM" != 2 || { printf "\\033[31mno\\nway" >&2; exit 3; }'
  const reapply = createReapply({ command: ['/bin/sh', '-c', script], timeoutMs: 10_000 }, process.env)
  const items = [item('1', 'a'), item('2', 'a'), item('3', 'a'), item('4', 'a')]
  const { decided, parts } = list(items, reapply)
  const failed = await codedError(() => decide(parts, FAILOVER, items, { decision: 'reapplied', reason: 'r' }, () => undefined))
  expect(failed).toMatchObject({ code: 'outcome-unknown', exit: 'unknown', fields: { done: 1, left: 2 } })
  expect(decided).toEqual(['1'])
  expect(failed.text.fact).toBe('item 2 of a: reapply.command ended with exit code 3; its words: "\\u001b[31mno way"')
  expect(failed.text.state).toMatch(/not known.*same HOMEREGION_ITEM\. Before it 1 were decided as asked; 2 after it were not reached\./)
  expect(failed.text.next).toBe('homeregion reconcile run-1 reapply --decide 2 --reason TEXT')
})

test('what somebody else decided while those before it were applied is not applied, and their word stands', async () => {
  const items = [item('1', 'a'), item('2', 'a')]
  const applied: string[] = []
  const { decided, parts } = list(items, (_, { HOMEREGION_ITEM }) => {
    applied.push(String(HOMEREGION_ITEM))
    items[1] = item('2', 'a', 'dropped')
    return Promise.resolve()
  })
  await decide(parts, FAILOVER, [...items], { decision: 'reapplied', reason: 'r' }, () => undefined)
  expect(applied).toEqual(['1'])
  // Asked all the same: the control plane refuses it in words.
  expect(decided).toEqual(['1', '2'])
})

test('a command that took too long may have applied it; one that could not be started did not', async () => {
  const ended = async (command: readonly string[]) => {
    const reapply = createReapply({ command, timeoutMs: 200 }, process.env)
    return await codedError(async () => await reapply?.({}, {}))
  }
  expect(await ended(['/bin/sh', '-c', 'cat > /dev/null; sleep 9'])).toMatchObject({ code: 'outcome-unknown' })
  expect(await ended(['/nonexistent/reapply'])).toMatchObject({ code: 'check-refused' })
})
