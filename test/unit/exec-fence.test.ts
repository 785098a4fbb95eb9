import { existsSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { createHooks } from '../../src/adapters/hooks/command-hooks.ts'
import { createExecFence } from '../../src/adapters/hooks/exec-fence.ts'
import type { FenceConfig, RegionConfig } from '../../src/domain/config.ts'
import { liftStanding } from '../rig/lift-standing.ts'
import { codedError } from './coded-error.ts'
import { CAUSE, createMemoryNotes } from './fence-sample.ts'
import { temporaryFolder } from './temporary-folder.ts'

type Commands = Partial<Pick<Extract<FenceConfig, { kind: 'exec' }>, 'apply' | 'verify' | 'lift' | 'timeoutMs'>>

/** A fence that is a file: it stands while the file is there. */
function createFileFence(commands: Commands = {}, faults: string[] = []) {
  const folder = temporaryFolder()
  const [wall, notes] = [join(folder, 'wall'), createMemoryNotes()]
  const sh = (script: string) => ['/bin/sh', '-c', script, 'sh', wall]
  const fence = createExecFence(
    { name: 'region-a' } as RegionConfig,
    {
      ...{ kind: 'exec', name: 'firewall', timeoutMs: 5_000 },
      ...{ apply: sh('env | grep ^HOMEREGION_ > "$1"'), verify: sh('test -f "$1"'), lift: sh('rm -f "$1"') },
      ...commands,
    },
    createHooks({ PATH: process.env['PATH'] ?? '' }),
    notes,
    name => {
      faults.push(name)
      return Promise.resolve()
    },
    () => '2026-01-02T03:04:05.000Z',
  )
  return { fence, notes, wall, sh }
}

test('applies, proves and lifts by commands that get their values from the environment alone', async () => {
  const { fence, notes, wall } = createFileFence()
  expect(await fence.status()).toMatchObject({ state: 'lifted' })
  const hostile = { ...CAUSE, reason: '$(touch /tmp/never); `id`', runId: 'run-1' }
  expect(await fence.apply(hostile)).toHaveLength(1)
  expect(readFileSync(wall, 'utf8').trim().split('\n').sort()).toEqual([
    'HOMEREGION_BY=ann@laptop',
    'HOMEREGION_FENCE=firewall',
    `HOMEREGION_REASON=${hostile.reason}`,
    'HOMEREGION_REGION=region-a',
    'HOMEREGION_RUN=run-1',
  ])
  expect((await fence.verify()).map(o => o.verdict)).toEqual(['pass'])
  expect(await fence.status()).toMatchObject({ state: 'applied', cause: hostile })
  await liftStanding(fence, CAUSE)
  expect(existsSync(wall)).toBe(false)
  expect(notes.written.map(n => n?.state ?? null)).toEqual(['applying', 'applied', 'lifting', null])
})

test('is noted before the first command runs, and stays noted when it fails', async () => {
  const { fence, notes } = createFileFence({ apply: ['/bin/sh', '-c', 'echo no such zone >&2; exit 4'] })
  const error = await codedError(() => fence.apply(CAUSE))
  expect(error.code).toBe('fence-failed')
  expect(error.text.fact).toContain('ended with 4: no such zone')
  expect(error.text.state).toContain('does not stand')
  expect(notes.written.map(n => n?.state)).toEqual(['applying'])
  expect(await fence.status()).toMatchObject({ state: 'applying', holds: [expect.stringContaining('NOT STANDING')] })
})

test.each([
  ['verify says that it does not stand', '/bin/sh -c exit${IFS}1', 'did not confirm'],
  ['verify says something else', '/bin/sh -c exit${IFS}7', 'did not confirm'],
  ['verify cannot be started', '/no/such/program', 'did not confirm'],
])('an apply that ends well counts for nothing when %s', async (_, verify, fact) => {
  const { fence } = createFileFence({ verify: verify.split(' ').map(w => w.replaceAll('${IFS}', ' ')) })
  const error = await codedError(() => fence.apply(CAUSE))
  expect(error).toMatchObject({ code: 'fence-failed', text: { fact: expect.stringContaining(fact) as string } })
})

test('1 is no, everything else but 0 is unknown', async () => {
  const verdict = async (verify: readonly string[]) => (await createFileFence({ verify }).fence.verify())[0]?.verdict
  expect(await verdict(['/bin/false'])).toBe('fail')
  expect(await verdict(['/bin/true'])).toBe('pass')
  expect(await verdict(['/bin/sh', '-c', 'exit 2'])).toBe('unknown')
  expect(await verdict(['/bin/sh', '-c', 'kill -9 $$'])).toBe('unknown')
  expect(await verdict(['/no/such/program'])).toBe('unknown')
})

test('a command that never ends is ended, with what it has started, even where that left the group', async () => {
  const { fence, wall } = createFileFence({ timeoutMs: 400 })
  const slow = createFileFence({
    timeoutMs: 400,
    apply: ['/bin/sh', '-c', `setsid sh -c 'sleep 3; touch "${wall}"' & sleep 20`],
  })
  const began = performance.now()
  const error = await codedError(() => slow.fence.apply(CAUSE))
  expect(performance.now() - began).toBeLessThan(5_000)
  expect(error.text.fact).toContain('ended after 400 ms')
  expect(await fence.status()).toMatchObject({ state: 'lifted' })
})

test.each([
  ['a child', 'sleep 30 &'],
  ['a child that left the group', 'setsid sleep 5 &'],
])('a command that ends well and leaves %s holding its output has ended well', async (_, leave) => {
  const { fence, wall } = createFileFence({ timeoutMs: 20_000, lift: ['/bin/true'] })
  const left = createFileFence({
    timeoutMs: 20_000,
    apply: ['/bin/sh', '-c', `touch "$0"; ${leave} exit 0`, wall],
    verify: ['test', '-f', wall],
  })
  const began = performance.now()
  await left.fence.apply(CAUSE)
  expect(performance.now() - began).toBeLessThan(5_000)
  expect((await fence.verify())[0]?.verdict).toBe('pass')
})

test('a command that prints gigabytes is cut and bounded', async () => {
  const { fence } = createFileFence({ timeoutMs: 800, apply: ['/bin/sh', '-c', 'yes very-long-line'] })
  const before = process.memoryUsage().rss
  const error = await codedError(() => fence.apply(CAUSE))
  expect(error.text.fact.length).toBeLessThan(1_000)
  expect(process.memoryUsage().rss - before).toBeLessThan(300e6)
})

test('a lift that is not confirmed leaves the fence on record', async () => {
  const { fence, notes } = createFileFence({ lift: ['/bin/true'] })
  await fence.apply(CAUSE)
  const error = await codedError(() => liftStanding(fence, CAUSE))
  expect(error.text.state).toContain('says that it stands')
  expect(notes.written.at(-1)?.state).toBe('lifting')
})

test('a process that died on the way is finished by the same verb, and stands since it was begun, for whoever asked last', async () => {
  const { fence, notes } = createFileFence()
  await notes.write({ state: 'applying', cause: CAUSE, asked: 1, since: '2026-01-01T00:00:00.000Z', former: null })
  await fence.apply({ ...CAUSE, by: 'bob@desk' })
  expect(await fence.status()).toMatchObject({ state: 'applied', since: '2026-01-01T00:00:00.000Z', cause: { ...CAUSE, by: 'bob@desk' } })
  await fence.apply({ ...CAUSE, by: 'run', runId: 'run-1' })
  const { asked, cause } = await fence.status()
  expect(cause).toEqual({ ...CAUSE, by: 'bob@desk' })
  const written = notes.written.length
  expect((await codedError(() => fence.lift(CAUSE, (asked ?? 0) - 1))).code).toBe('fence-asked-again')
  expect((await codedError(() => fence.lift(CAUSE, null))).code).toBe('fence-asked-again')
  expect(notes.written.length).toBe(written)
})

test('can be stopped between any two steps', async () => {
  const faults: string[] = []
  const { fence } = createFileFence({}, faults)
  await fence.apply(CAUSE)
  expect(faults).toEqual(['fence:exec:noted', 'fence:exec:called', 'fence:exec:done'])
})
