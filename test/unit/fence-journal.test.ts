import { spawn } from 'node:child_process'
import { appendFileSync, chmodSync, existsSync, mkdirSync, readFileSync, statSync } from 'node:fs'
import { dirname, join } from 'node:path'
import pg from 'pg'
import { expect, test } from 'vitest'
import { tsxLoader } from '../../sandbox/tsx-loader.ts'
import { translate } from '../../src/adapters/control-plane/refusals.ts'
import { newEntry } from '../../src/adapters/files/fence-entry.ts'
import { createFenceJournal } from '../../src/adapters/files/fence-journal.ts'
import { createFenceNotes } from '../../src/adapters/files/fence-notes.ts'
import { packageFile } from '../../src/adapters/files/package-root.ts'
import { stateFolder } from '../../src/adapters/files/state-folder.ts'
import { mergeFormer } from '../../src/adapters/kafka-region/fence-record.ts'
import { HomeregionError } from '../../src/domain/errors.ts'
import type { FenceEntry, FenceJournal, LoggedFence } from '../../src/domain/fence.ts'
import { codedError } from './coded-error.ts'
import { CAUSE, sampleEntry } from './fence-sample.ts'
import { temporaryFolder } from './temporary-folder.ts'

const ADDRESS = 'here:5432/cp'

/** What of a control plane the journal talks to; `down` makes it unreachable. */
function createLog() {
  const kept: FenceEntry[] = []
  const log = {
    down: false,
    /** What it refuses by an error of its own. */
    refuses: null as ((entry: FenceEntry) => Error | null) | null,
    asked: 0,
    kept,
    id: 'one',
    installation: () => {
      if (!log.down) return Promise.resolve(log.id)
      log.asked += 1
      return Promise.reject(new HomeregionError('control-plane-unreachable', { fact: 'it is down' }))
    },
    logFence: (entries: readonly FenceEntry[]) => {
      log.asked += 1
      if (log.down) return Promise.reject(new HomeregionError('control-plane-unreachable', { fact: 'it is down' }))
      const [refused] = entries.flatMap(e => log.refuses?.(e) ?? [])
      if (refused !== undefined) return Promise.reject(refused)
      kept.push(...entries.filter(e => !kept.some(k => k.id === e.id)))
      return Promise.resolve()
    },
    fenceLog: (filter: { region?: string; fence?: string }) =>
      Promise.resolve(told(kept.filter(e => e.event === 'noted' && e.region === filter.region && e.fence === filter.fence)).reverse()),
    fencesTold: () => Promise.resolve(told(kept.filter(e => e.event !== 'noted')).slice(-1)),
  }
  return log
}

function databaseError(code: string, text: string): Error {
  return Object.assign(new pg.DatabaseError(text, text.length, 'error'), { code })
}

function told(entries: readonly FenceEntry[]): LoggedFence[] {
  return entries.map(e => ({ ...e, recordedAt: e.at, recordedBy: 'operator' }))
}

function wall(journal: FenceJournal) {
  return createFenceNotes(journal, { region: 'region-a', fence: 'wall', kind: 'kafka', by: 'ann' }, newEntry('laptop'), mergeFormer)
}

const deny = (name: string) => ({ resource: 'topic', name, principal: 'User:app' })

function noteOf(state: 'applying' | 'applied', added: readonly string[], found: readonly string[] = [], asked = 1) {
  const former = { added: added.map(deny), found: found.map(deny), elsewhere: {} }
  return { state, cause: CAUSE, asked, since: '2026-01-02T03:04:05.000Z', former }
}

test('an entry is on this machine first, and in the control plane once it answers', async () => {
  const [folder, log] = [join(temporaryFolder(), 'state'), createLog()]
  const journal = createFenceJournal(folder, 'billing', log, ADDRESS)
  log.down = true
  const entry = sampleEntry()
  await journal.keep([entry])
  expect(await journal.handOver()).toBeNull()
  expect(await journal.pending()).toEqual([entry])
  expect(await journal.told()).toEqual({ entries: [entry], from: 'this machine' })

  log.down = false
  // Another process, the next morning.
  const later = createFenceJournal(folder, 'billing', log, ADDRESS)
  expect(await later.handOver()).toBe(1)
  expect(log.kept).toEqual([entry])
  expect(await later.pending()).toEqual([])
  expect((await later.told()).from).toBe('control plane')
})

test('a control plane that did not answer is waited for once in a process', async () => {
  const log = createLog()
  log.down = true
  const journal = createFenceJournal(temporaryFolder(), 'billing', log, ADDRESS)
  for (let i = 0; i < 5; i++) {
    await journal.keep([sampleEntry()])
    await journal.handOver()
  }
  expect(log.asked).toBe(1)
  await journal.handOver(true)
  expect(log.asked).toBe(2)
})

test('an entry that was sent, and whose receipt was lost, is sent again and kept once', async () => {
  const [folder, log] = [temporaryFolder(), createLog()]
  const journal = createFenceJournal(folder, 'billing', log, ADDRESS)
  const entry = sampleEntry()
  await journal.keep([entry])
  await log.logFence([entry])
  expect(await journal.handOver()).toBe(1)
  expect(log.kept).toEqual([entry])
})

test('a line that a crash has torn spoils no other', async () => {
  const journal = createFenceJournal(temporaryFolder(), 'billing', createLog(), ADDRESS)
  const [first, second] = [sampleEntry(), sampleEntry()]
  await journal.keep([first])
  appendFileSync(journal.file, '\n{"entry":{"id":"0000')
  expect(await journal.pending()).toEqual([first])
  await journal.keep([second])
  expect(await journal.pending()).toEqual([first, second])
})

test('the file is for its owner alone, and its name holds no path', async () => {
  const folder = join(temporaryFolder(), 'deep', 'state')
  const journal = createFenceJournal(folder, '../evil', createLog(), ADDRESS)
  await journal.keep([sampleEntry()])
  expect(dirname(journal.file)).toBe(folder)
  expect(statSync(journal.file).mode & 0o777).toBe(0o600)
  expect(statSync(folder).mode & 0o777).toBe(0o700)
})

test('a folder that cannot be written is said before anything is changed', async () => {
  const folder = temporaryFolder({ state: 'a file, where the folder should be' })
  const journal = createFenceJournal(join(folder, 'state'), 'billing', createLog(), ADDRESS)
  const error = await codedError(() => journal.keep([sampleEntry()]))
  expect(error.code).toBe('fence-failed')
  expect(error.text.next).toContain('HOMEREGION_STATE_DIR')
})

test('processes that write at once leave whole lines', { timeout: 60_000 }, async () => {
  const folder = temporaryFolder()
  const script = `
    const { createFenceJournal } = await import(${JSON.stringify(packageFile('src/adapters/files/fence-journal.ts'))})
    const { newEntry } = await import(${JSON.stringify(packageFile('src/adapters/files/fence-entry.ts'))})
    const journal = createFenceJournal(process.argv[1], 'billing', {}, 'here:5432/cp')
    for (let i = 0; i < 20; i++)
      await journal.keep([newEntry('host')({ region: 'region-a', fence: 'f' + i, kind: 'exec', event: 'applied', by: 'ann', runId: null, reason: 'x'.repeat(5000), detail: null })])`
  const codes = await Promise.all(
    Array.from({ length: 3 }, async () => {
      const child = spawn(process.execPath, ['--import', tsxLoader(), '--input-type=module', '-e', script, folder], { stdio: 'inherit' })
      return await new Promise(resolve => child.once('close', resolve))
    }),
  )
  expect(codes).toEqual([0, 0, 0])
  expect(await createFenceJournal(folder, 'billing', createLog(), ADDRESS).pending()).toHaveLength(60)
})

test('the note of a fence is found by the next process, with and without the control plane', async () => {
  const [folder, log] = [temporaryFolder(), createLog()]
  const open = () =>
    createFenceNotes(
      createFenceJournal(folder, 'billing', log, ADDRESS),
      { region: 'region-a', fence: 'wall', kind: 'exec', by: 'ann' },
      newEntry('laptop'),
    )
  log.down = true
  const note = { state: 'applying' as const, cause: CAUSE, asked: 7, since: '2026-01-02T03:04:05.000Z', former: { added: ['x'] } }
  await open().write(note)
  expect(await open().read()).toEqual(note)
  log.down = false
  expect(await open().read()).toEqual(note)
  expect(log.kept.map(e => e.event)).toEqual(['noted'])
  // From another machine, which has no file.
  const elsewhere = createFenceJournal(temporaryFolder(), 'billing', log, ADDRESS)
  const there = createFenceNotes(elsewhere, { region: 'region-a', fence: 'wall', kind: 'exec', by: 'bob' }, newEntry('desk'))
  expect(await there.read()).toEqual(note)
  await there.write(null)
  expect(await open().read()).toBeNull()
})

test('a control plane that answers and cannot write stops no fence: said, and handed over later', async () => {
  const [folder, log] = [temporaryFolder(), createLog()]
  log.refuses = () => translate(databaseError('25006', 'cannot execute INSERT in a read-only transaction')) as Error
  const journal = createFenceJournal(folder, 'billing', log, ADDRESS)
  const notes = wall(journal)
  const note = noteOf('applying', ['x'])
  await notes.write(note)
  expect(journal.refusal()).toContain('read-only transaction')
  expect(await journal.pending()).toHaveLength(1)
  expect(await notes.read()).toEqual(note)
  expect(log.asked).toBe(1)
  log.refuses = null
  expect(await createFenceJournal(folder, 'billing', log, ADDRESS).handOver()).toBe(1)
})

test('one entry that the control plane will never take is kept aside, and the others go on', async () => {
  const [folder, log] = [temporaryFolder(), createLog()]
  const journal = createFenceJournal(folder, 'billing', log, ADDRESS)
  const [first, poison, last] = [sampleEntry(), sampleEntry({ fence: 'poison' }), sampleEntry()]
  log.refuses = e => (e.fence === 'poison' ? databaseError('22P02', 'invalid input syntax for type uuid') : null)
  await journal.keep([first, poison, last])
  expect(await journal.handOver()).toBe(2)
  expect(log.kept).toEqual([first, last])
  expect(await journal.pending()).toEqual([])
  const later = createFenceJournal(folder, 'billing', log, ADDRESS)
  expect(await later.aside()).toEqual([{ entry: poison, why: expect.stringContaining('invalid input syntax') as string }])
  const asked = log.asked
  expect(await later.handOver()).toBe(0)
  expect(log.asked).toBe(asked)
})

/** Two machines that put the same fence up during an outage: the second finds the DENY of the first. */
async function twoMachines() {
  const log = createLog()
  log.down = true
  const open = () => createFenceJournal(temporaryFolder(), 'billing', log, ADDRESS)
  const machines = { first: open(), second: open() }
  await wall(machines.first).write(noteOf('applied', ['x'], [], 1))
  await wall(machines.second).write(noteOf('applied', [], ['x'], 2))
  log.down = false
  return { log, ...machines }
}

test.each(['the first', 'the second'])("what one of two machines added is the fence's to take back when %s is heard first", async order => {
  const { log, first, second } = await twoMachines()
  for (const journal of order === 'the first' ? [first, second] : [second, first]) await journal.handOver(true)
  const notes = wall(createFenceJournal(temporaryFolder(), 'billing', log, ADDRESS))
  expect(await notes.read()).toMatchObject({ asked: 2, former: { added: [deny('x')], found: [] } })
  await notes.write(null)
  expect(await notes.read()).toBeNull()
})

test('a lifting ends only what it knew of: what another machine had added stays on record', async () => {
  const { log, first, second } = await twoMachines()
  await second.handOver(true)
  const notes = wall(createFenceJournal(temporaryFolder(), 'billing', log, ADDRESS))
  expect(await notes.read()).toMatchObject({ former: { added: [], found: [deny('x')] } })
  await notes.write(null)
  expect(await notes.read()).toBeNull()
  await first.handOver(true)
  expect(await notes.read()).toMatchObject({ asked: 1, former: { added: [deny('x')] } })
  await notes.write(null)
  expect(await notes.read()).toBeNull()
})

test.each([
  ['another one at the same address', ADDRESS],
  ['one at another address', 'there:5432/cp'],
])('what was kept for one control plane is not handed over to %s, and says so', async (_, address) => {
  const [folder, first, second] = [temporaryFolder(), createLog(), createLog()]
  second.id = 'two'
  const [handed, left] = [sampleEntry(), sampleEntry({ event: 'noted', fence: 'wall' })]
  const journal = createFenceJournal(folder, 'billing', first, ADDRESS)
  await journal.keep([handed])
  await journal.handOver()
  await journal.keep([left])
  const other = createFenceJournal(folder, 'billing', second, address)
  expect(await other.handOver()).toBe(0)
  expect(second.kept).toEqual([])
  expect(await other.notes('region-a', 'wall')).toEqual([])
  expect(await other.aside()).toEqual([{ entry: left, why: `made for another control plane (${ADDRESS}, installation one)` }])
  // The same one, wherever it stands now.
  expect(await createFenceJournal(folder, 'billing', first, 'moved:5432/cp').handOver()).toBe(1)
})

test('an emergency finds its control plane again behind another address when this machine had ever heard which one it is', async () => {
  const [folder, log] = [temporaryFolder(), createLog()]
  // Nothing to hand over: a status in good times.
  expect(await createFenceJournal(folder, 'billing', log, ADDRESS).handOver()).toBe(0)
  log.down = true
  const entry = sampleEntry()
  await createFenceJournal(folder, 'billing', log, ADDRESS).keep([entry])
  log.down = false
  const replica = createFenceJournal(folder, 'billing', log, 'replica:5432/cp')
  expect(await replica.handOver()).toBe(1)
  expect(log.kept).toEqual([entry])
  expect(await replica.aside()).toEqual([])
})

test('one that was made anew at the same address is learnt by the next status, and gets what is kept after it', async () => {
  const [folder, log] = [temporaryFolder(), createLog()]
  const at = () => createFenceJournal(folder, 'billing', log, ADDRESS)
  expect(await at().handOver(true)).toBe(0)
  log.id = 'two'
  expect(await at().handOver(true)).toBe(0)
  log.down = true
  const entry = sampleEntry()
  await at().keep([entry])
  log.down = false
  expect(await at().handOver(true)).toBe(1)
  expect(log.kept).toEqual([entry])
})

test('which one it was is found out afterwards, also by way of its old address', async () => {
  const [folder, log] = [temporaryFolder(), createLog()]
  log.down = true
  const entry = sampleEntry()
  const journal = createFenceJournal(folder, 'billing', log, ADDRESS)
  await journal.keep([entry])
  log.down = false
  const replica = () => createFenceJournal(folder, 'billing', log, 'replica:5432/cp')
  expect(await replica().handOver()).toBe(0)
  expect(await replica().aside()).toEqual([{ entry, why: `made for another control plane (${ADDRESS})` }])
  expect(await createFenceJournal(folder, 'billing', log, ADDRESS).handOver()).toBe(1)
  expect(await replica().aside()).toEqual([])
})

test('the folder follows HOMEREGION_STATE_DIR, then XDG, then the home', () => {
  expect(stateFolder({ HOMEREGION_STATE_DIR: '/s', XDG_STATE_HOME: '/x', HOME: '/h' })).toBe('/s')
  expect(stateFolder({ XDG_STATE_HOME: '/x', HOME: '/h' })).toBe('/x/homeregion')
  expect(stateFolder({ XDG_STATE_HOME: 'relative', HOME: '/h' })).toBe('/h/.local/state/homeregion')
})

test('reading makes no file', async () => {
  const folder = join(temporaryFolder(), 'state')
  const journal = createFenceJournal(folder, 'billing', createLog(), ADDRESS)
  expect(await journal.pending()).toEqual([])
  expect(existsSync(folder)).toBe(false)
  mkdirSync(folder)
  chmodSync(folder, 0o700)
  await journal.keep([sampleEntry()])
  expect(readFileSync(journal.file, 'utf8').startsWith('\n')).toBe(true)
})
