import { Chalk } from 'chalk'
import { expect, test } from 'vitest'
import type { CliContext, World } from '../../src/cli/context.ts'
import { say } from '../../src/cli/failover/approve.ts'
import type { Approval } from '../../src/domain/approval.ts'
import type { Run } from '../../src/domain/journal.ts'
import type { ControlPlane } from '../../src/domain/ports.ts'
import { only } from './engine-fixture.ts'

const WORD: Approval = {
  ...{ runId: 'run-1', verdict: 'approved', approver: 'bob', reason: 'seen', breakGlass: false, byStarter: false, at: 'now' },
}
const RUN = {
  ...{ id: 'run-1', state: 'OPEN', intent: 'failover', moves: [{ key: 'k', outcome: null }], startedBy: 'alice', startedAt: 'then' },
  ...{ holder: { user: 'alice', host: 'vm', pid: 7 }, leaseAlive: true },
} as unknown as Run

async function told(about: {
  readonly run?: Partial<Run>
  readonly others?: readonly Run[]
  readonly needed?: number
  readonly before?: boolean
}) {
  const run = { ...RUN, ...about.run }
  const lines: string[] = []
  const printer = {
    ...{ style: new Chalk({ level: 0 }), isTerminal: true, columns: 80, write: () => undefined },
    line: (text: string) => void lines.push(...text.split('\n')),
  }
  const controlPlane = only<ControlPlane>({
    approve: () => Promise.resolve({ ...WORD, saidBefore: about.before === true }),
    run: () => Promise.resolve(run),
    runs: () => Promise.resolve([run, ...(about.others ?? [])]),
    approvals: () => Promise.resolve([WORD]),
    approvalPolicy: () =>
      Promise.resolve({ approvers: ['alice', 'bob', 'carol'], needed: about.needed ?? 1, aboveKeys: 0, since: 'then', starter: 'alice' }),
  })
  const context = only<CliContext>({
    format: () => 'text',
    out: printer,
    connect: () => Promise.resolve({ controlPlane } as unknown as World),
  })
  await say(context, 'run-1', 'approved', { reason: about.before === true ? 'something else' : 'seen' })
  for (const line of lines) expect(line.length).toBeLessThanOrEqual(80)
  return lines.join('\n')
}

test('an approval says who has to type what now: nobody, where the process that waits lives', async () => {
  expect(await told({})).toMatch(/^next: {2}homeregion status {3}\(nothing else: it goes on by itself in pid 7 of\n +alice@vm\)$/m)
  expect(await told({ run: { leaseAlive: false } })).toMatch(/^next: {2}homeregion resume run-1$/m)
  const lacking = await told({ needed: 2 })
  expect(lacking).toContain('state: 1 of 2 approvals.')
  expect(lacking).toMatch(/^next: {2}homeregion approve run-1 {3}\(carol\)$/m)
})

test('an approval names another run that is about to force the same keys', async () => {
  const other = { ...RUN, id: 'run-2' }
  expect(await told({ others: [other, { ...other, id: 'run-3', intent: 'transfer' }] })).toMatch(
    /^note: {2}run run-2 is failing over 1 of its/m,
  )
  expect(await told({ others: [{ ...other, moves: [] }] })).not.toContain('note:')
})

test('the same word again changes nothing, and says which reason stands', async () => {
  expect(await told({ before: true })).toContain('that first word stands: seen\nstate: The new reason was not recorded.')
})
