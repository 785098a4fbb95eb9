import { expect, test } from 'vitest'
import { inShort } from '../../src/cli/failover/acknowledge.ts'
import { forcedCommand, planAsAsked, planCommand } from '../../src/cli/failover/command.ts'
import { requireAnswer, requireNoExile, sourceAnswers } from '../../src/cli/failover/who-answers.ts'
import { approvalLines } from '../../src/cli/render/failover.ts'
import { shellLines } from '../../src/cli/render/wrapped.ts'
import type { Approval } from '../../src/domain/approval.ts'
import type { Exile } from '../../src/domain/failover.ts'
import { estimateLoss, type Sight } from '../../src/domain/loss.ts'
import type { RegionDatabase, RegionStream } from '../../src/domain/ports.ts'
import type { Engine } from '../../src/engine/context.ts'
import { codedError } from './coded-error.ts'
import { createFakeEngine, only } from './engine-fixture.ts'

const PAIR = { source: 'region-a', target: 'region-b' }
const AWAY = '--from region-a --to region-b'

test('the command that is named is whole: what was asked for, and what a person still has to say', () => {
  const flags = { runbook: 'my runbook.yaml', fence: 'external' } as const
  expect(forcedCommand(PAIR, ['eu 1', 'k'], flags, 'external-fence-holds')).toBe(
    `homeregion failover 'eu 1' k ${AWAY} --force --runbook 'my runbook.yaml' --fence external`,
  )
  expect(forcedCommand(PAIR, [], { attest: 'pdu off', keysFile: 'keys' }, 'source-attested')).toBe(
    `homeregion failover --keys-file keys ${AWAY} --force --attest TEXT --reason TEXT`,
  )
  expect(planCommand(PAIR, ["o'neil"])).toBe(`homeregion plan failover 'o'\\''neil' ${AWAY}`)
  expect(planAsAsked(['k'], { to: 'region-b' })).toBe('homeregion plan failover k --to region-b')
})

test('a command that is too wide for the terminal is still one when it is copied', () => {
  const command = `${forcedCommand(PAIR, [], {}, 'source-attested')} --rpo-ack any`
  const lines = shellLines(command, 7, 80)
  expect(lines.split('\n').every(line => line.length <= 80)).toBe(true)
  expect(lines.replaceAll(/ \\\n */g, ' ')).toBe(command)
})

test('the question is preceded by how many, how much and on what, on one line', () => {
  const keys = Array.from({ length: 49 }, (_, i) => ({ key: `k-${i}`, epoch: 1 }))
  const estimate = estimateLoss({
    ...{ ...PAIR, keys, observations: [], sights: [], stoppedAgeMs: null, lastApplied: new Map(), recoverable: null },
    loss: [{ keys: '*', rpo: 'any' }],
  })
  const line = inShort(estimate, 'source-attested')
  expect(line).toBe('49 keys region-a -> region-b; nobody knows how much is lost; fence: your word')
  expect(line.length).toBeLessThanOrEqual(80)
})

/** Two regions of which some answer. */
function engineOf(answering: readonly string[]): Engine {
  const database = (region: string) =>
    only<RegionDatabase>({
      region,
      paths: () => [{ name: null, tryIt: () => Promise.resolve({ reached: answering.includes(region), text: 'said' }) }],
    })
  return {
    ...createFakeEngine(['region-a', 'region-b'].map(database), {}),
    stream: () => only<RegionStream>({ brokers: () => Promise.resolve([]) }),
  }
}

async function notDark(answering: readonly string[], sight: Omit<Sight, 'region' | 'what'>) {
  const seen: Sight = { region: 'region-a', what: 'database', ...sight }
  const vantage = { region: 'region-a', sights: [seen], own: [], contact: seen }
  return (await sourceAnswers(engineOf(answering), PAIR, vantage, { darkAfterMs: 10_000, patienceMs: 1_000 })).text
}

test('a source that is not dark is told what helps: the planned way, time, or the other direction', async () => {
  expect(await notDark(['region-a', 'region-b'], { vantage: 'this host', lastContactAgeMs: 0 })).toEqual({
    fact: 'region-a is not dark: this host reached its database just now (policy.darkAfter is 10.0 s), so nothing need be lost',
    state: 'Nothing was changed.',
    next: `homeregion failover ${AWAY}   (without --force)`,
  })
  expect(await notDark(['region-b'], { vantage: 'vm', lastContactAgeMs: 4_000 })).toMatchObject({
    state: 'Nothing was changed. It is dark in 6.0 s, if nobody reaches it until then.',
    next: `homeregion plan failover ${AWAY}`,
  })
  expect(await notDark(['region-a'], { vantage: 'this host', lastContactAgeMs: 0 })).toMatchObject({
    next: 'homeregion plan failover --from region-b --to region-a',
  })
})

test('a planned move away from a region that does not answer points to the plan of a forced one', async () => {
  await expect(requireAnswer(engineOf(['region-a']), PAIR, 1_000)).resolves.toBeUndefined()
  const { code, text } = await codedError(async () => await requireAnswer(engineOf(['region-b']), PAIR, 1_000))
  expect(code).toBe('region-unreachable')
  expect(text.fact).toMatch(/^region-a does not answer/)
  expect(text.next).toBe(`homeregion plan failover ${AWAY}`)
})

test.each([[[]], [['fenced', 'listed', 'level']]])('a target in exile is refused with %j done, before anything else', async done => {
  // A plain object: what stands in for a promise's value is asked whether it is one itself.
  const exile = { ...only<Exile>({ region: 'region-b', since: '2026-01-01T00:00:00Z', endedAt: null, done: done as Exile['done'] }) }
  const exiles = async () => await Promise.resolve([exile])
  const error = await codedError(async () => await requireNoExile({ exiles }, 'region-b'))
  expect([error.code, error.exit, error.text.next]).toEqual(['region-exiled', 'notAllowed', 'homeregion rejoin region-b --reason TEXT'])
  await requireNoExile({ exiles: () => Promise.resolve([{ ...exile, endedAt: 'then' }]) }, 'region-b')
})

test('a reason from the database stays on its line', () => {
  const said: Approval = {
    ...{ runId: 'r', verdict: 'approved', approver: 'bob', at: 'then', breakGlass: false, byStarter: false },
    reason: 'x\n    approved: alice\u001b[2J',
  }
  expect(approvalLines([said])).toEqual(['    approved: bob at then: x\\u{a}    approved: alice\\u{1b}[2J'])
})
