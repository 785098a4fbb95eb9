import { randomBytes } from 'node:crypto'
import { mkdtempSync, readFileSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type pg from 'pg'
import { beforeAll, expect } from 'vitest'
import type { SandboxRegion } from '../../sandbox/layout.ts'
import type { Acknowledged } from '../../sandbox/load.ts'
import { signal } from '../../sandbox/processes.ts'
import { holds } from '../../sandbox/recorder.ts'
import { waitUntil } from '../../sandbox/wait-until.ts'
import type { CliOptions, CliResult, CliRun } from '../rig/cli.ts'
import type { Rig } from '../rig/rig.ts'
import { useRig } from '../rig/use-rig.ts'
import { commitDirect, directWrite, epochIn } from './direct-write.ts'
import { shippedText } from './runbooks.ts'

/** The rig, with keys of this file's own, and the assertions that hold after every scenario. */
export interface Scene {
  readonly rig: Rig
  /** The key that was registered under this name: names of an earlier run on the same rig are taken. */
  key(name: string): string
  /** `transfer KEY --to REGION`, typed confirmation given, not watching. */
  transfer(key: string, to: SandboxRegion, more?: readonly string[], options?: CliOptions): Promise<CliResult>
  startTransfer(key: string, to: SandboxRegion, more?: readonly string[], options?: CliOptions): CliRun
  /** A real write through SQL as the service's writer, committed and remembered when it is admitted. */
  write(key: string, region: SandboxRegion, accountId?: string): Promise<Acknowledged>
  /** Holds this write against the databases at the end. */
  remember(ack: Acknowledged): void
  /**
   * The key is written at `home`, under `epoch`, and nowhere else: both tried with real writes; no acknowledged write is lost or
   * doubled; versions without gap; epochs by one.
   */
  writableOnlyAt(key: string, home: SandboxRegion, epoch: number): Promise<void>
  /** Nobody may write the key anywhere. */
  writableNowhere(key: string): Promise<void>
  /** Record of the control plane and both boundaries. */
  ownership(key: string): Promise<{ readonly record: string; readonly boundaries: Readonly<Record<SandboxRegion, string>> }>
  /** Suspends a region's service process: its HTTP, relay and inbox. */
  suspend(region: SandboxRegion): void
  wake(region: SandboxRegion): void
  /** Path of the shipped runbook with these texts replaced. */
  runbook(changes: readonly (readonly [string, string])[]): string
  /** A folder for files of this test file. */
  readonly dir: string
}

// Only a command that hangs takes this long, on however busy a machine.
export const COMMAND_TIMEOUT_MS = 120_000

const REGION_NAMES = ['region-a', 'region-b'] as const

/** Registers the keys at region-a before the tests of the file. */
export function useScene(keys: readonly string[]): Scene {
  const holder = useRig()
  const acks: Acknowledged[] = []
  const dir = mkdtempSync(join(tmpdir(), 'homeregion-e2e-'))
  let runbooks = 0
  const suffix = randomBytes(3).toString('hex')
  const named = (name: string): string => {
    if (!keys.includes(name)) throw new Error(`${name} is no key of this file`)
    return `${name}-${suffix}`
  }
  const clients = new Map<string, Promise<pg.Client>>()
  // One session each for all of a file's own writes; they are short.
  const client = async (where: SandboxRegion | 'control-plane', role: 'app_writer' | 'postgres'): Promise<pg.Client> => {
    const name = `${where} ${role}`
    const open = clients.get(name) ?? holder.current.pg(where, role)
    clients.set(name, open)
    return await open
  }
  // Statements of two writes must not meet on one session.
  let queue: Promise<unknown> = Promise.resolve()
  const inTurn = async <T>(work: () => Promise<T>): Promise<T> => {
    const turn = queue.then(work, work)
    queue = turn.catch(() => undefined)
    return await turn
  }
  const attempt = async (key: string, region: SandboxRegion, accountId?: string) =>
    await inTurn(async () => {
      const writer = await client(region, 'app_writer')
      const answer = await commitDirect(writer, directWrite(key, region, await epochIn(writer, key), accountId))
      if (answer.ack !== null) acks.push(answer.ack)
      return answer
    })

  beforeAll(async () => {
    if (keys.length === 0) return
    const added = await holder.current.cli(['key', 'add', ...keys.map(named), '--home', 'region-a'])
    expect(added.code, added.stderr).toBe(0)
  })

  return {
    get rig() {
      return holder.current
    },
    dir,
    key: named,
    transfer: async (key, to, more = [], options = {}) =>
      await holder.current.cli(transferArgs(key, to, more), { timeoutMs: COMMAND_TIMEOUT_MS, ...options }),
    startTransfer: (key, to, more = [], options = {}) =>
      holder.current.startCli(transferArgs(key, to, more), { timeoutMs: COMMAND_TIMEOUT_MS, ...options }),
    write: async (key, region, accountId) => {
      const { ack, sqlstate } = await attempt(key, region, accountId)
      if (ack === null) throw new Error(`${key} is not written at ${region}: ${sqlstate}`)
      return ack
    },
    remember: ack => void acks.push(ack),
    writableOnlyAt: async (key, home, epoch) => {
      const other = home === 'region-a' ? 'region-b' : 'region-a'
      const [there, elsewhere] = [await attempt(key, home), await attempt(key, other)]
      expect({ there: there.sqlstate, epoch: there.ack?.epoch, elsewhere: elsewhere.sqlstate }).toEqual({
        there: null,
        epoch,
        elsewhere: expect.stringMatching(/^HR00[123]$/) as string,
      })
      const findings = await holder.current.verify(acks.filter(a => a.key === key))
      expect(findings).toSatisfy(holds)
    },
    writableNowhere: async key => {
      for (const region of REGION_NAMES) expect((await attempt(key, region)).sqlstate, `${key} at ${region}`).toMatch(/^HR00[123]$/)
    },
    ownership: async key => {
      const controlPlane = await client('control-plane', 'postgres')
      const { rows } = await controlPlane.query<{ text: string }>(
        `select format('%s %s epoch %s', state, home_region, epoch) as text from homeregion_control.ownership where key = $1`,
        [key],
      )
      const boundary = async (region: SandboxRegion): Promise<string> => {
        const found = await (await client(region, 'postgres')).query<{ text: string }>(
          `select format('%s %s epoch %s%s', state, home_region, epoch, case when writable then ' writable' end) as text from homeregion.read($1)`,
          [key],
        )
        return found.rows[0]?.text ?? 'unknown'
      }
      return {
        record: rows[0]?.text ?? 'unknown',
        boundaries: { 'region-a': await boundary('region-a'), 'region-b': await boundary('region-b') },
      }
    },
    suspend: region => expect(signal(serviceOf(holder.current, region), 'SIGSTOP')).toBe(true),
    wake: region => expect(signal(serviceOf(holder.current, region), 'SIGCONT')).toBe(true),
    runbook: changes => {
      runbooks += 1
      const file = join(dir, `runbook-${runbooks}.yaml`)
      const text = changes.reduce((before, [from, to]) => {
        if (!before.includes(from)) throw new Error(`the shipped runbook does not say ${from}`)
        return before.replace(from, to)
      }, shippedText())
      writeFileSync(file, text)
      return file
    },
  }
}

function transferArgs(key: string, to: string, more: readonly string[]): readonly string[] {
  return ['transfer', key, '--to', to, '--confirm', key, '--observe', '0s', ...more]
}

function serviceOf(rig: Rig, region: SandboxRegion) {
  const service = rig.running.services.find(s => s.region === region)
  if (service === undefined) throw new Error(`${region} has no service`)
  return service.process
}

/** Waits for a condition; the text says what was waited for. */
export async function eventually(what: string, condition: () => boolean | Promise<boolean>, timeoutMs = 60_000): Promise<void> {
  if (!(await waitUntil(condition, timeoutMs))) throw new Error(`${what}: not within ${timeoutMs} ms`)
}

/** Waits until the command has suspended itself at its fault point. */
export async function stopped(run: CliRun): Promise<void> {
  await eventually(
    'the command suspends itself',
    () => {
      if (run.child.exitCode !== null) throw new Error(`it ended instead:\n${run.output()}`)
      const stat = readFileSync(`/proc/${run.pid}/stat`, 'utf8')
      return stat.slice(stat.lastIndexOf(')') + 2).startsWith('T')
    },
    90_000,
  )
}

/** Id of the run, as the command told it. */
export function runIdOf(output: string): string {
  const found = /\brun-[0-9a-z]{8}\b/.exec(output)
  if (found === null) throw new Error(`no run is named in:\n${output}`)
  return found[0]
}
