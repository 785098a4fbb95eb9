import { readFileSync } from 'node:fs'
import { Chalk } from 'chalk'
import { expect, test } from 'vitest'
import { loadConfig } from '../../src/adapters/files/config-file.ts'
import { packageFile } from '../../src/adapters/files/package-root.ts'
import type { Printer } from '../../src/cli/context.ts'
import { fencePlanText, fenceStatusText, probeText, resultText } from '../../src/cli/render/fence.ts'
import { type Status, statusPaste, statusText } from '../../src/cli/render/status.ts'
import { HomeregionError } from '../../src/domain/errors.ts'
import { fail, pass } from '../../src/domain/evidence.ts'
import type { FenceEvent, LoggedFence } from '../../src/domain/fence.ts'
import { SAMPLE } from './config-sample.ts'
import { CAUSE, sampleEntry } from './fence-sample.ts'
import { QUIET_STATUS } from './status-sample.ts'
import { temporaryFolder } from './temporary-folder.ts'

const printer: Printer = { style: new Chalk({ level: 0 }), isTerminal: false, columns: 100, write: () => undefined, line: () => undefined }
const fence = { region: 'region-a', name: 'read-only', kind: 'read-only' as const }
// A terminal would clear its screen, a chat would call everybody.
const HOSTILE = '\u001B[2J<!channel> ```'

function logged(event: FenceEvent, reason: string | null = CAUSE.reason): LoggedFence {
  return { ...sampleEntry({ event, fence: event, reason }), recordedAt: '2026-01-02T03:04:06.000Z', recordedBy: 'operator' }
}

function status(fences: readonly LoggedFence[]): Status {
  return { ...QUIET_STATUS, fences: fences.map(fence => ({ ...fence, stops: 0 })) }
}

test('what failed is said with its state, and what is not proved is not called applied without a mark', () => {
  const error = new HomeregionError('fence-failed', {
    fact: 'the sink is full',
    state: 'app_writer cannot log in, its password is unchanged.',
  })
  expect(resultText({ fence, verb: 'apply', error, lines: [], proofs: [] }, printer)).toBe(
    'NO read-only (read-only): apply failed: the sink is full\n    state: app_writer cannot log in, its password is unchanged.',
  )
  const proofs = [pass('db', 'refused', '4 refused'), fail('db', '0 sessions', '1 session')]
  const text = resultText({ fence, verb: 'apply', error: null, lines: ['one line'], proofs }, printer)
  expect(text).toMatch(/^NO read-only .*applied$/m)
  expect(text).toMatch(/NO 0 sessions: 1 session \(db\)/)
})

test('a proof that had nothing to be tried on is not called ok', () => {
  const proofs = [
    pass('writers', 'every write refused', 'not probed: no key', { probes: 0 }),
    pass('db', 'refused', '4 refused', { probes: 4 }),
  ]
  const text = resultText({ fence, verb: 'apply', error: null, lines: [], proofs }, printer)
  expect(text).toContain('  -- every write refused: not probed: no key (writers)\n  ok refused: 4 refused (db)')
})

test('names and messages from outside reach no terminal as they are', () => {
  const steps = [{ place: HOSTILE, text: `revoke\n${HOSTILE}`, why: HOSTILE }]
  const outputs = [
    fencePlanText([{ fence: HOSTILE, kind: 'exec', steps, problem: null }], printer),
    resultText({ fence: { ...fence, name: HOSTILE }, verb: 'lift', error: null, lines: [HOSTILE], proofs: [] }, printer),
    probeText(HOSTILE, { fences: [], writes: [fail(HOSTILE, 'x', HOSTILE)], verdict: 'fail' }, printer),
    statusText(status([logged('found-lifted', HOSTILE)]), printer),
    statusPaste(status([logged('found-lifted', HOSTILE)])),
  ]
  for (const output of outputs) expect(output).not.toContain('\u001B')
  expect(outputs.at(-1)).not.toContain('<!channel>')
})

test('a fence that could not be planned is shown as one that will be tried', () => {
  const text = fencePlanText([{ fence: 'kafka', kind: 'kafka', steps: [], problem: 'no broker answers' }], printer)
  expect(text).toBe('kafka (kafka)\n  no plan could be made: no broker answers')
})

test('the table of fences cuts long cells and shouts what was found lifted', () => {
  const look = {
    ...{ fence, told: sampleEntry(), foundLifted: true },
    status: { state: 'lifted' as const, since: null, cause: null, asked: null, holds: ['x'.repeat(300)] },
  }
  const text = fenceStatusText([look], printer)
  expect(text).toContain('FOUND LIFTED')
  expect(text).toContain(`was applied by ${CAUSE.by}`)
  expect(Math.max(...text.split('\n').map(line => line.length))).toBeLessThan(200)
})

test('status shows the worst fence first, and says what to run', () => {
  const text = statusText(status([logged('applied'), logged('lift-failed'), logged('found-lifted')]), printer)
  const lines = text.split('\n').filter(line => line.startsWith('fence '))
  expect(lines.map(line => line.split(' ')[1])).toEqual(['found-lifted', 'lift-failed', 'applied'])
  expect(lines[0]).toContain('FOUND LIFTED')
  expect(lines[0]).toContain('next: homeregion fence status region-a')
  expect(lines[2]).not.toContain('next:')
})

test.each(['README.md', 'docs/fences/README.md'])('the fences in %s are ones that the configuration takes', file => {
  const text = readFileSync(packageFile(...file.split('/')), 'utf8')
  const blocks = [...text.matchAll(/```yaml\n(fences:\n[\s\S]*?)```/g)].map(m => m[1] ?? '')
  expect(blocks.length).toBeGreaterThan(0)
  for (const block of blocks) {
    const indented = block.replace(/^(?=.)/gm, '    ')
    const cwd = temporaryFolder({ 'homeregion.yaml': SAMPLE.replace('  region-b:\n', `${indented}  region-b:\n`) })
    const { config } = loadConfig({ env: {}, flags: {}, cwd })
    expect(config.regions[0]?.fences.length).toBeGreaterThan(0)
  }
})
