import { describe, expect, test } from 'vitest'
import { CHECKS, type CheckName } from '../../src/domain/checks.ts'
import type { Runbook, Step } from '../../src/domain/runbook.ts'
import { LINT_RULES, type LintRule, lintRunbook } from '../../src/domain/runbook-lint.ts'
import {
  changed,
  changedFailover,
  changedRejoin,
  check,
  FORCED_STEPS,
  failover,
  REJOIN_STEPS,
  rejoinBook,
  runbook,
  STEPS,
  step,
} from './runbook-sample.ts'

const rules = (book: Runbook) => [...new Set(lintRunbook(book).map(problem => problem.rule))]
const without = (found: Step, name: CheckName): Step => ({ ...found, gate: found.gate.filter(use => use.check !== name) })
const sql = (region: 'source' | 'target', statement = 'select 1'): Step =>
  step('sql', { action: { kind: 'sql', region, statement, parameters: [] } })
const pause: Step = step('pause', { action: { kind: 'pause', forMs: 1_000 } })
const region: Step = step('region', { action: { kind: 'fence-region', fences: ['kafka'] } })
const exec = (timeoutMs: number): Step => step('exec', { action: { kind: 'exec', command: ['true'], timeoutMs } })

test('the shortest good runbook of each intent is accepted', () => {
  expect(lintRunbook(runbook(STEPS))).toEqual([])
  expect(lintRunbook(failover(FORCED_STEPS))).toEqual([])
  expect(lintRunbook(rejoinBook(REJOIN_STEPS))).toEqual([])
})

test('an author may put commands, questions and looks between the steps of a rejoin', () => {
  const asked = step('ask', { confirm: 'plain' })
  const looked = step('look', { gate: ['regions-reachable'], watch: ['boundary-installed'], forMs: 1_000 })
  expect(lintRunbook(changedRejoin('lift', found => [exec(1_000), pause, asked, looked, { ...found, confirm: 'plain' }]))).toEqual([])
})

test('a rejoin that lifts first says which step has to come before, and why', () => {
  const lift = REJOIN_STEPS.filter(s => s.id === 'lift')
  const first = rejoinBook([...lift, ...REJOIN_STEPS.filter(s => s.id !== 'lift')])
  expect(lintRunbook(first)).toMatchObject([
    {
      ...{ rule: 'rejoin-in-order', path: ['steps', 0, 'action'], message: 'lift comes before fence, follow, list, decide, level' },
      hint: expect.stringMatching(/opened when it is level.*; the order is fence, follow, list, decide, level, lift, end$/) as string,
    },
  ])
})

const drain = step('drain', { action: { kind: 'drain' } })
const lateDrain = runbook(STEPS.flatMap(found => (found.id === 'drain' ? [] : found.id === 'catch-up' ? [drain, found] : [found])))
const lateProof = runbook(
  STEPS.map(found =>
    found.id === 'fence' ? without(found, 'fence-holds') : found.id === 'activate' ? { ...found, gate: [check('fence-holds')] } : found,
  ),
)

const swapped = (one: string, other: string) =>
  REJOIN_STEPS.map(s => REJOIN_STEPS.find(t => t.id === (s.id === one ? other : s.id === other ? one : s.id)) ?? s)

/** Each runbook breaks one rule and no other. */
const BREAKS: readonly [LintRule, string, Runbook][] = [
  ['ids-unique', 'an id twice', changed('activate', found => [{ ...found, id: 'fence' }])],
  ['step-does-something', 'an empty step', changed('drain', found => [step('nothing'), found])],
  ['ownership-actions-once', 'two drains', changed('fence', found => [step('again', { action: { kind: 'drain' } }), found])],
  ['ownership-actions-once', 'two fences', changed('activate', found => [step('again', { action: { kind: 'fence' } }), found])],
  ['ownership-actions-once', 'no drain', changed('drain', () => [])],
  ['ownership-actions-once', 'two activations', runbook([...STEPS, step('again', { action: { kind: 'activate' } })])],
  ['ownership-actions-in-order', 'the drain after the fence', lateDrain],
  ['preflight-before-drain', 'no boundary-installed', changed('preflight', found => [without(found, 'boundary-installed')])],
  ['preflight-before-drain', 'no fence-covers-writers', changed('preflight', found => [without(found, 'fence-covers-writers')])],
  ['fence-proved-before-activation', 'fence-holds in no gate', changed('fence', found => [without(found, 'fence-holds')])],
  ['fence-proved-before-activation', 'fence-holds only after the activation', lateProof],
  ['caught-up-before-activation', 'no barrier-applied', changed('catch-up', found => [without(found, 'barrier-applied')])],
  ['caught-up-before-activation', 'no versions-equal', changed('catch-up', found => [without(found, 'versions-equal')])],
  ['caught-up-before-activation', 'no idempotency-carried', changed('catch-up', found => [without(found, 'idempotency-carried')])],
  [
    'caught-up-before-activation',
    'versions compared only before the fence',
    runbook(
      STEPS.map(s =>
        s.id === 'catch-up' ? without(s, 'versions-equal') : s.id === 'drain' ? { ...s, gate: [...s.gate, check('versions-equal')] } : s,
      ),
    ),
  ],
  ['no-human-while-writes-stop', 'a confirmation in the drain step', changed('drain', found => [{ ...found, confirm: 'plain' }])],
  [
    'no-human-while-writes-stop',
    'a confirmation after the fence',
    changed('catch-up', found => [step('ask', { confirm: 'type-key' }), found]),
  ],
  ['no-human-while-writes-stop', 'a confirmation after the activation', runbook([...STEPS, step('ask', { confirm: 'plain' })])],
  ['no-human-while-writes-stop', 'a pause between drain and fence', changed('fence', found => [pause, found])],
  ['no-human-while-writes-stop', 'a pause between fence and activation', changed('activate', found => [pause, found])],
  [
    'no-human-while-writes-stop',
    'a watch before the activation',
    changed('activate', found => [step('look', { watch: ['fence-holds'], forMs: 1_000 }), found]),
  ],
  ['ownership-actions-once', 'a rejoin without its list', changedRejoin('list', () => [])],
  [
    'ownership-actions-once',
    'a rejoin that levels twice',
    changedRejoin('lift', found => [step('again', { action: { kind: 'level' } }), found]),
  ],
  ['rejoin-in-order', 'a rejoin that levels before it was decided', rejoinBook(swapped('decide', 'level'))],
  ['rejoin-in-order', 'a rejoin that ends before it lifts', rejoinBook(swapped('lift', 'end'))],
  ['rejoin-in-order', 'a command before the fence', changedRejoin('fence', found => [exec(1_000), found])],
  ['rejoin-in-order', 'a command after the end', rejoinBook([...REJOIN_STEPS, exec(1_000)])],
  ['rejoin-by-itself', 'a drain in a rejoin', changedRejoin('lift', found => [drain, found])],
  ['rejoin-by-itself', 'sql in a rejoin', changedRejoin('lift', found => [sql('target'), found])],
  ['rejoin-by-itself', 'a region fence in a rejoin', changedRejoin('lift', found => [region, found])],
  ['rejoin-by-itself', 'a key to type in a rejoin', changedRejoin('lift', found => [step('ask', { confirm: 'type-key' }), found])],
  ['rejoin-by-itself', 'a question before the fence', changedRejoin('fence', found => [{ ...found, confirm: 'plain' }])],
  [
    'rejoin-by-itself',
    'a check of a move in a rejoin',
    changedRejoin('lift', found => [step('look', { gate: ['outbox-published'] }), found]),
  ],
  ['rejoin-by-itself', 'a gate behind the end', changedRejoin('end', found => [{ ...found, gate: [check('regions-reachable')] }])],
  [
    'rejoin-by-itself',
    'a step of a rejoin in a transfer',
    changed('activate', found => [step('level', { action: { kind: 'level' } }), found]),
  ],
  ['no-sql-at-the-fenced-source', 'sql at the source after the fence', changed('activate', found => [sql('source'), found])],
  ['region-fence-after-catch-up', 'a fence of the region beside the key’s', changed('catch-up', found => [region, found])],
  ['region-fence-after-catch-up', 'a fence of the region before the drain', changed('drain', found => [region, found])],
  ['check-can-pass', 'fence-holds before the fence', changed('drain', found => [step('early', { gate: ['fence-holds'] }), found])],
  ['check-can-pass', 'the barrier before the fence', changed('drain', found => [step('early', { gate: ['barrier-applied'] }), found])],
  [
    'check-can-pass',
    'the target writing before the activation',
    changed('activate', found => [step('early', { gate: ['target-accepts-write'] }), found]),
  ],
  ['check-once-in-a-list', 'a check twice', changed('fence', found => [{ ...found, gate: [...found.gate, check('fence-holds')] }])],
  ['watch-has-its-time', 'a watch without for', runbook([...STEPS, step('look', { watch: ['fence-holds'] })])],
  ['watch-has-its-time', 'for without a watch', runbook([...STEPS, step('look', { gate: ['fence-holds'], forMs: 1_000 })])],
  [
    'one-intent',
    'a loss acknowledged in a transfer',
    changed('preflight', found => [{ ...found, gate: [...found.gate, check('loss-acknowledged')] }]),
  ],
  ['one-intent', 'an isolation in a transfer', changed('activate', found => [step('isolate', { action: { kind: 'isolate' } }), found])],
  ['one-intent', 'a drain in a failover', changedFailover('isolate', found => [step('drain', { action: { kind: 'drain' } }), found])],
  ['one-intent', 'a fence of the region in a failover', changedFailover('isolate', found => [region, found])],
  [
    'ownership-actions-once',
    'a failover that isolates nothing',
    failover(FORCED_STEPS.map(s => (s.id === 'isolate' ? { ...s, action: null } : s))),
  ],
  [
    'ownership-actions-once',
    'two isolations',
    changedFailover('activate', found => [step('again', { action: { kind: 'isolate' } }), found]),
  ],
  ['loss-owned-before-activation', 'a source nobody has looked for', changedFailover('sight', found => [without(found, 'source-dark')])],
  ['loss-owned-before-activation', 'records nobody has compared', changedFailover('sight', found => [without(found, 'no-region-ahead')])],
  [
    'loss-owned-before-activation',
    'a target nobody has looked at',
    changedFailover('sight', found => [without(found, 'target-can-write')]),
  ],
  ['loss-owned-before-activation', 'a loss that nobody owns', changedFailover('estimate', found => [without(found, 'loss-acknowledged')])],
  [
    'loss-owned-before-activation',
    'no approval',
    changedFailover('approve', found => [{ ...without(found, 'approved'), gate: [check('target-can-write')] }]),
  ],
  ['fenced-from-outside-before-activation', 'no fence from outside', changedFailover('isolate', found => [without(found, 'lease-over')])],
  [
    'check-can-pass',
    'a lease that is over before anybody withholds it',
    changedFailover('isolate', found => [step('early', { gate: ['lease-over'] }), found]),
  ],
  [
    'no-human-while-writes-stop',
    'a confirmation after isolate',
    changedFailover('activate', found => [step('ask', { confirm: 'plain' }), found]),
  ],
  ['no-sql-at-the-fenced-source', 'sql at a dark source', changedFailover('isolate', found => [sql('source'), found])],
  ['limits-are-sane', 'within 0', changed('fence', found => [{ ...found, withinMs: 0 }])],
  ['limits-are-sane', 'within more than an hour', changed('fence', found => [{ ...found, withinMs: 3_600_001 }])],
  ['limits-are-sane', 'for more than a day', runbook([...STEPS, step('look', { watch: ['fence-holds'], forMs: 86_400_001 })])],
  ['limits-are-sane', 'a command that may take for ever', changed('drain', found => [exec(3_600_001), found])],
  ['limits-are-sane', 'a command that may take no time', changed('drain', found => [exec(0), found])],
  ['sql-parameters-match', 'a parameter that is not given', changed('drain', found => [sql('source', 'select $1'), found])],
]

describe('each rule has a runbook that breaks only it', () => {
  test.each(BREAKS)('%s: %s', (rule, _case, book) => {
    expect(rules(book)).toEqual([rule])
  })

  test('no rule is without one', () => {
    expect(new Set(BREAKS.map(([rule]) => rule))).toEqual(new Set(LINT_RULES))
  })
})

test('a region may be fenced as a whole when the target has caught up, before or after the activation', () => {
  expect(lintRunbook(changed('activate', found => [region, found]))).toEqual([])
  expect(lintRunbook(runbook([...STEPS, region]))).toEqual([])
})

describe('what authors may do', () => {
  test.each([
    ['a pause before the drain', changed('drain', found => [pause, found])],
    ['a pause after the activation', runbook([...STEPS, pause])],
    ['a command while writes are stopped', changed('catch-up', found => [exec(1_000), found])],
    ['sql at the target while writes are stopped', changed('activate', found => [sql('target'), found])],
    ['sql at the source before the fence', changed('fence', found => [sql('source'), found])],
    ['sql whose text quotes a parameter', changed('drain', found => [sql('source', 'select \'$1\', "$2" -- $3\n/* $4 */'), found])],
    ['fence-holds in a later gate', changed('fence', found => [without(found, 'fence-holds'), step('prove', { gate: ['fence-holds'] })])],
  ])('%s', (_case, book) => {
    expect(lintRunbook(book)).toEqual([])
  })
})

describe('no accepted runbook reaches activation without the evidence', () => {
  // A second, independent reading of the rule: walk the steps and collect what has passed.
  function reachesBlind({ steps }: Runbook): boolean {
    const passed = new Set<string>()
    let drained = false
    let fenced = false
    for (const { action, gate } of steps) {
      if (action?.kind === 'drain') drained = true
      if (action?.kind === 'fence') {
        if (!drained) return true
        fenced = true
        // Evidence from before the fence proves nothing.
        passed.clear()
      }
      if (action?.kind === 'activate')
        return (
          !fenced || (['fence-holds', 'barrier-applied', 'versions-equal', 'idempotency-carried'] as const).some(name => !passed.has(name))
        )
      for (const use of gate) passed.add(use.check)
    }
    return false
  }

  function random(seed: number): () => number {
    let state = seed
    return () => {
      state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0
      return state / 2 ** 32
    }
  }

  /** The good runbook with some of its parts dropped, doubled, moved or swapped. */
  function mutant(next: () => number): Runbook {
    const pick = (n: number) => Math.floor(next() * n)
    const steps = [...STEPS]
    for (let i = pick(4); i >= 0; i--) {
      const at = pick(steps.length)
      const found = steps[at]
      if (found === undefined) continue
      const kind = pick(5)
      if (kind === 0) steps.splice(at, 1)
      else if (kind === 1) steps.splice(pick(steps.length + 1), 0, found)
      else if (kind === 2) steps.splice(pick(steps.length), 0, ...steps.splice(at, 1))
      else if (kind === 3) steps[at] = { ...found, gate: found.gate.filter(() => next() < 0.6) }
      else steps[at] = { ...found, gate: [...found.gate, check((CHECKS[pick(CHECKS.length)] ?? CHECKS[0]).name)] }
    }
    return runbook(steps)
  }

  test('over 5,000 mutants', () => {
    const next = random(20_261_129)
    const accepted: Runbook[] = []
    for (let i = 0; i < 5_000; i++) {
      const book = mutant(next)
      if (lintRunbook(book).length === 0) accepted.push(book)
    }
    expect(accepted.filter(reachesBlind)).toEqual([])
    // The search is not blind: it accepts some and refuses most.
    expect(accepted.length).toBeGreaterThan(50)
    expect(accepted.length).toBeLessThan(4_000)
  })
})
