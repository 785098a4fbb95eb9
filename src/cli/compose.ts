import { randomUUID } from 'node:crypto'
import { hostname, userInfo } from 'node:os'
import { createControlPlane } from '../adapters/control-plane/control-plane-store.ts'
import { installControlPlane } from '../adapters/control-plane/install.ts'
import { createFenceJournal } from '../adapters/files/fence-journal.ts'
import { stateFolder } from '../adapters/files/state-folder.ts'
import { createRegionStream } from '../adapters/kafka-region/kafka-stream.ts'
import { installBoundary } from '../adapters/postgres-region/install.ts'
import { createRegionDatabase } from '../adapters/postgres-region/region-database.ts'
import { childEnvironments } from '../adapters/system/child-environment.ts'
import { systemClock } from '../adapters/system/clock.ts'
import { createFaultPoint } from '../adapters/system/fault-point.ts'
import type { Secrets } from '../adapters/system/secrets.ts'
import type { Config, RegionConfig } from '../domain/config.ts'
import { HomeregionError } from '../domain/errors.ts'
import type { Fence } from '../domain/fence.ts'
import { showKey } from '../domain/key.ts'
import { droppedChecks, interlockPolicy } from '../domain/planning.ts'
import type { Engine, Operator } from '../engine/context.ts'
import { composeHooks, composeSecrets } from './compose-children.ts'
import { composeFences, composeRotations } from './compose-fences.ts'
import type { Installer, World } from './context.ts'

/** A client that is still being opened towards a server that does not answer is not waited for longer than this. */
const CLOSE_MS = 2_000

type Env = Readonly<Record<string, string | undefined>>

/** Wires the adapters of one configuration; the only file that knows them all. Nothing is connected before its first use. */
export function compose(config: Config, env: Env): World {
  const secrets = composeSecrets(config, env)
  const hooks = composeHooks(config, env)
  const holder = { host: hostname(), pid: process.pid, user: userInfo().username }
  const controlPlane = createControlPlane(config, secrets)
  const named = (name: string) => {
    const found = config.regions.find(r => r.name === name)
    if (found !== undefined) return found
    throw new HomeregionError('unknown-region', {
      fact: `there is no region named ${showKey(name)}; the configuration has ${config.regions.map(r => r.name).join(', ')}`,
      state: 'Nothing was changed.',
      next: 'homeregion config show',
    })
  }
  const region = once(name => createRegionDatabase(named(name), config, secrets))
  const stream = once(name => createRegionStream(named(name), config, secrets))
  const fenceJournal = createFenceJournal(stateFolder(env), config.service, controlPlane, addressOf(config.controlPlane.operator.url))
  const fault = createFaultPoint(env['HOMEREGION_FAULT'])
  const parts = { config, secrets, env: childEnvironments(env, config).secretStores, journal: fenceJournal, hooks, fault, holder }
  const fences = once(name => composeFences(named(name), parts))
  const rotating: Fence[] = []
  const engine = (operator: Operator): Engine => ({
    controlPlane,
    region: region.get,
    stream: stream.get,
    fences: fences.get,
    hooks,
    clock: systemClock,
    fault,
    policy: {
      interlock: interlockPolicy(config),
      dropped: droppedChecks(config),
      runLeaseMs: config.policy.runLeaseMs,
      callTimeoutMs: config.policy.callTimeoutMs,
      shared: config.topology === 'shared',
      inboxGroup: name => named(name).kafka.inboxGroup,
      alarm: config.alarm,
    },
    operator,
    holder,
    newId: randomUUID,
  })
  return {
    controlPlane,
    region: region.get,
    stream: stream.get,
    fences: fences.get,
    rotations: (name, roles) => {
      const made = composeRotations(named(name), roles, parts)
      rotating.push(...made)
      return made
    },
    fenceJournal,
    engine,
    installers: ({ only, without }) => {
      const left = without?.map(named) ?? []
      const regions = (only?.map(named) ?? config.regions).filter(r => !left.includes(r))
      return installersOf(config, secrets, regions, only === undefined)
    },
    holder,
    close: async () => {
      const closed = Promise.allSettled([
        controlPlane.close(),
        ...region.all().map(r => r.close()),
        ...stream.all().map(s => s.close()),
        ...[...fences.all().flat(), ...rotating].map(f => f.close()),
      ])
      let timer: NodeJS.Timeout | undefined
      await Promise.race([closed, new Promise(resolve => (timer = setTimeout(resolve, CLOSE_MS)))])
      clearTimeout(timer)
    },
  }
}

/** Host, port and database: no login, no setting. */
function addressOf(url: string): string {
  const { hostname: host, port, pathname } = new URL(url)
  return `${host}:${port === '' ? '5432' : port}${pathname}`
}

function installersOf(config: Config, secrets: Secrets, regions: readonly RegionConfig[], withControlPlane: boolean): readonly Installer[] {
  const controlPlane: Installer = {
    place: 'control plane',
    region: null,
    install: async dryRun => {
      const { statements, stands } = await installControlPlane({ config, secrets, dryRun })
      return stands ? [] : statements.map(s => `-- ${s.why}\n${s.sql};`)
    },
  }
  const boundaries = regions.map(region => ({
    place: `${region.name} boundary`,
    region: region.name,
    install: async (dryRun: boolean) => (await installBoundary({ config, region, secrets, dryRun })).shown,
  }))
  return withControlPlane ? [controlPlane, ...boundaries] : boundaries
}

function once<T>(make: (name: string) => T): { get: (name: string) => T; all: () => readonly T[] } {
  const made = new Map<string, T>()
  return {
    get: name => {
      const known = made.get(name) ?? make(name)
      made.set(name, known)
      return known
    },
    all: () => [...made.values()],
  }
}
