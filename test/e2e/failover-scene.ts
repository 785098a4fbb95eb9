import { mkdtempSync, readFileSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type pg from 'pg'
import { afterAll, beforeAll, expect } from 'vitest'
import { parse, stringify } from 'yaml'
import type { SandboxRegion } from '../../sandbox/layout.ts'
import { killProcess } from '../../sandbox/processes.ts'
import { createControlPlane } from '../../src/adapters/control-plane/control-plane-store.ts'
import { loadConfig } from '../../src/adapters/files/config-file.ts'
import { createSecrets } from '../../src/adapters/system/secrets.ts'
import type { RegionObservation } from '../../src/domain/loss.ts'
import type { ControlPlane } from '../../src/domain/ports.ts'
import type { CliOptions, CliResult, CliRun } from '../rig/cli.ts'
import { type Rig, startRig } from '../rig/rig.ts'
import { startAtTerminal, type TerminalRun } from '../rig/terminal.ts'
import { COMMAND_TIMEOUT_MS } from './scene.ts'

/** Listed in policy.approvals. */
export const APPROVER = 'bob_approves'
/** A login of the operators that is not. */
export const STRANGER = 'eve_does_not'
const PASSWORD = 'approver-of-a-throwaway-cluster'

type Policy = Readonly<Record<string, unknown>>
type Written = {
  controlPlane: { url: string; password: unknown }
  policy: Policy
  agent?: { observeEvery: string }
  regions: Record<string, { fences: unknown[]; lease?: unknown }>
}

/** A rig of its own, since an exile would stand in the way of other files; its region-a is killed by the tests. */
export interface FailoverScene {
  readonly rig: Rig
  readonly store: ControlPlane
  /** Registers keys at region-a, or elsewhere. */
  register(keys: readonly string[], home?: SandboxRegion): Promise<void>
  /** PostgreSQL, Kafka and the service, all at once, with SIGKILL. */
  kill(region: SandboxRegion): Promise<void>
  /** The last look of an agent at region-a. */
  observe(look?: Partial<RegionObservation>): Promise<void>
  cli(args: readonly string[], options?: CliOptions & { readonly as?: string }): Promise<CliResult>
  startCli(args: readonly string[], options?: CliOptions): CliRun
  /** A config file of somebody whose policy is not what `init` put in force. */
  copy(name: string, policy: Policy): string
  /** The same at a real terminal. */
  terminal(args: readonly string[]): TerminalRun
  record(key: string): Promise<string>
  /** What region-b's boundary says. */
  boundary(key: string): Promise<string>
  /** A real write of the service's login at region-b, rolled back: its SQLSTATE, null when it was admitted. */
  writeAt(region: SandboxRegion, key: string): Promise<string | null>
  openRuns(): Promise<readonly string[]>
  /** The file that stands for region-a's external fence: it is there while the fence is applied. */
  readonly fenceFile: string
  /** As the administrator of region-b's database. */
  adminOfTarget(sql: string): Promise<void>
}

export const POLICY: Policy = {
  evidenceMaxAge: '5s',
  runLease: '5s',
  callTimeout: '4s',
  darkAfter: '1s',
  loss: [
    { keys: 'ledger-*', rpo: 'never' },
    { keys: 'short-*', rpo: '30s' },
    { keys: '*', rpo: 'any' },
  ],
  approvals: { approvers: [APPROVER, 'homeregion_operator'], needed: 1, aboveKeys: 3 },
}

export type FailoverSceneOptions = { readonly change?: (config: Written, dir: string) => void; readonly services?: boolean }

export function useFailoverScene(options: FailoverSceneOptions = {}): FailoverScene {
  let rig: Rig | undefined
  let store: ControlPlane | undefined
  let config = ''
  let settings: Written | undefined
  let control: pg.Client | undefined
  const configs = new Map<string, string>()
  const clients = new Map<string, pg.Client>()
  const dir = mkdtempSync(join(tmpdir(), 'homeregion-failover-'))
  const there = <T>(value: T | undefined): T => {
    if (value === undefined) throw new Error('the scene runs inside tests and hooks only')
    return value
  }

  beforeAll(async () => {
    rig = await startRig({ services: options.services ?? false })
    const written = parse(readFileSync(rig.config, 'utf8')) as Written
    written.policy = POLICY
    written.agent = { observeEvery: '500ms' }
    const file = join(dir, 'fence-of-region-a')
    written.regions['region-a']?.fences.push({
      ...{ kind: 'exec', name: 'uplink', apply: ['touch', file], lift: ['rm', '-f', file], verify: ['test', '-f', file], timeout: '5s' },
    })
    // Nobody grants it but the test, which is about what a failover does with it.
    if (written.regions['region-a'] !== undefined)
      written.regions['region-a'].lease = { duration: '3s', margin: '1s', onAgentOutage: 'stop' }
    options.change?.(written, dir)
    settings = written
    config = write('homeregion', written)
    const secret = join(dir, 'approver')
    writeFileSync(secret, PASSWORD, { mode: 0o600 })
    control = await rig.pg('control-plane')
    for (const login of [APPROVER, STRANGER]) {
      await control.query(`create role ${login} login password '${PASSWORD}' in role homeregion_operator`)
      const url = new URL(written.controlPlane.url)
      url.username = login
      configs.set(
        login,
        write(login, { ...written, controlPlane: { ...written.controlPlane, url: url.toString(), password: { file: secret } } }),
      )
    }
    const init = await rig.cli(['--config', config, 'init', '--yes'], { timeoutMs: COMMAND_TIMEOUT_MS })
    expect(init.code, init.stderr).toBe(0)
    const loaded = loadConfig({ env: {}, cwd: dir, flags: {}, file: config })
    store = createControlPlane(loaded.config, createSecrets({}))
  })
  afterAll(async () => {
    await store?.close()
    await rig?.stop()
  })

  function write(name: string, written: Written): string {
    const path = join(dir, `${name}.yaml`)
    writeFileSync(path, stringify(written, { aliasDuplicateObjects: false }))
    return path
  }

  const at = async (region: SandboxRegion, role: 'postgres' | 'app_writer'): Promise<pg.Client> => {
    const name = `${region} ${role}`
    const client = clients.get(name) ?? (await there(rig).pg(region, role))
    clients.set(name, client)
    return client
  }

  const scene: FailoverScene = {
    get rig() {
      return there(rig)
    },
    get store() {
      return there(store)
    },
    register: async (keys, home = 'region-a') => {
      const added = await scene.cli(['key', 'add', ...keys, '--home', home])
      expect(added.code, added.stderr).toBe(0)
    },
    kill: async region => {
      const { processes } = there(rig).sandbox
      const names = [`postgres-${region}`, `kafka-${region}`, `service-${region}`]
      await Promise.all(processes.list().flatMap(p => (names.includes(p.name) ? [killProcess(p)] : [])))
    },
    observe: async (look = {}) => {
      const { ageMs = 5_000, observer = 'agent-b', ...rest } = look
      await there(control).query('delete from homeregion_control.region_observation')
      await there(control).query('delete from homeregion_control.region_sight')
      await there(store).recordObservation({
        ...{ observer, takenAgoMs: ageMs, contacts: [{ region: 'region-a', what: 'database', reached: true }] },
        observations: [
          {
            ...{ region: 'region-a', unpublished: 2, oldestUnpublishedMs: 400, highestPerSecond: 5 },
            notApplied: { 'region-b': { events: 1, oldestMs: 300 } },
            ...rest,
          },
        ],
      })
    },
    cli: async (args, { as, ...more } = {}) =>
      await there(rig).cli(['--config', as === undefined ? config : (configs.get(as) ?? config), ...args], {
        timeoutMs: COMMAND_TIMEOUT_MS,
        ...more,
      }),
    startCli: (args, more = {}) => there(rig).startCli(['--config', config, ...args], { timeoutMs: COMMAND_TIMEOUT_MS, ...more }),
    copy: (name, policy) => write(name, { ...there(settings), policy: { ...there(settings).policy, ...policy } }),
    terminal: args => {
      const { dir } = there(rig)
      return startAtTerminal(['--config', config, ...args], { HOMEREGION_STATE_DIR: join(dir, 'state') })
    },
    record: async key => {
      const { rows } = await there(control).query<{ text: string }>(
        `select format('%s %s epoch %s', state, home_region, epoch) as text from homeregion_control.ownership where key = $1`,
        [key],
      )
      return rows[0]?.text ?? 'unknown'
    },
    boundary: async key => {
      const { rows } = await (await at('region-b', 'postgres')).query<{ text: string }>(
        `select format('%s %s epoch %s%s', state, home_region, epoch, case when writable then ' writable' end) as text from homeregion.read($1)`,
        [key],
      )
      return rows[0]?.text ?? 'unknown'
    },
    writeAt: async (region, key) => {
      const client = await at(region, 'app_writer')
      await client.query('begin')
      try {
        await client.query(`insert into public.account (tenant_id, account_id, version, billing_address) values ($1, $2, 1, 'probe')`, [
          key,
          `probe-${key}`,
        ])
        return null
      } catch (error) {
        return (error as { code?: string }).code ?? String(error)
      } finally {
        await client.query('rollback')
      }
    },
    fenceFile: join(dir, 'fence-of-region-a'),
    adminOfTarget: async sql => void (await (await at('region-b', 'postgres')).query(sql)),
    openRuns: async () => (await there(store).runs({ states: ['OPEN', 'NEEDS_HUMAN'], limit: 50 })).map(r => r.id),
  }
  return scene
}
