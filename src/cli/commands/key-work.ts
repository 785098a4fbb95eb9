import { resolve } from 'node:path'
import { readKeysFile } from '../../adapters/files/keys-file.ts'
import type { Config } from '../../domain/config.ts'
import { suggestion } from '../../domain/did-you-mean.ts'
import { HomeregionError } from '../../domain/errors.ts'
import { parseKey, showKey } from '../../domain/key.ts'
import { type OwnershipRecord, STATES } from '../../domain/ownership.ts'
import type { ControlPlane, LogRow } from '../../domain/ports.ts'
import { type RegisterParts, registerEverywhere, syncRegions } from '../../engine/register-keys.ts'
import type { CliContext } from '../context.ts'
import { renderTable } from '../render/table.ts'
import type { ListOptions } from './list-options.ts'

export async function add(context: CliContext, raw: readonly string[], home: string): Promise<void> {
  const format = context.format('json')
  const { config } = await context.settings()
  needRegion(config, home)
  const keys = raw.map(parseKey)
  for (const [i, key] of keys.entries()) {
    if (keys.indexOf(key) !== i) throw refuseKey(key, 'is given twice')
    if (isRegion(config, key)) throw refuseKey(key, REGION_NAME)
  }
  print(context, format, await register(context, config, keys, home))
}

/** Tells every region about every registered key: the way out when `add` or `import` could not reach one. */
export async function sync(context: CliContext): Promise<void> {
  const format = context.format('json')
  const { config } = await context.settings()
  const told = await syncRegions(await registerParts(context, config))
  context.out.line(
    format === 'json'
      ? JSON.stringify({ keys: told })
      : `${told} keys are known in ${config.regions.map(region => region.name).join(', ')}`,
  )
}

async function register(context: CliContext, config: Config, keys: readonly string[], home: string): Promise<readonly OwnershipRecord[]> {
  return await registerEverywhere(
    await registerParts(context, config),
    keys.map(key => ({ key, homeRegion: home })),
  )
}

async function registerParts(context: CliContext, { regions, ownership }: Config): Promise<RegisterParts> {
  const world = await context.connect()
  return {
    controlPlane: world.controlPlane,
    regions: regions.map(region => world.region(region.name)),
    defaultHome: ownership.defaultHome,
  }
}

export async function importFile(context: CliContext, file: string, home: string): Promise<void> {
  const format = context.format('json')
  const { config } = await context.settings()
  needRegion(config, home)
  // The file is judged before anything is connected; what only the control plane knows comes into the same report.
  const keys = await readKeysFile(resolve(context.cwd, file), {
    judge: async candidates => await judge(config, (await context.connect()).controlPlane, candidates),
  })
  const records = await register(context, config, keys, home)
  if (format === 'json') context.out.line(JSON.stringify({ registered: records.length, home }))
  else context.out.line(`registered ${records.length} keys at ${home} under epoch 1 (read back from the control plane)`)
}

export async function list(context: CliContext, { home, state, after, limit }: ListOptions): Promise<void> {
  const format = context.format('json')
  const { config } = await context.settings()
  if (home !== undefined) needRegion(config, home)
  if (state !== undefined && !STATES.some(known => known === state))
    throw new HomeregionError('usage', { fact: `there is no state "${state}"; ${suggestion(state, STATES)}`, next: 'homeregion states' })
  const { controlPlane } = await context.connect()
  // One more than asked for tells whether there is a next page.
  const found = await controlPlane.listOwnership({
    ...(home === undefined ? {} : { homeRegion: home }),
    ...(state === undefined ? {} : { state }),
    ...(after === undefined ? {} : { after: parseKey(after) }),
    limit: limit + 1,
  })
  const page = found.slice(0, limit)
  print(context, format, page)
  const last = page.at(-1)
  if (found.length > limit && last !== undefined) context.err.line(`there are more: homeregion key list --after ${showKey(last.key)}`)
}

export async function show(context: CliContext, raw: string): Promise<void> {
  const format = context.format('json')
  const key = parseKey(raw)
  const { controlPlane } = await context.connect()
  const [[record], history] = await Promise.all([controlPlane.ownership([key]), controlPlane.history(key)])
  if (record === undefined)
    throw new HomeregionError('unknown-key', {
      fact: `${showKey(key)} is not registered in the control plane`,
      state: 'Nothing was changed.',
      next: `homeregion key add ${showKey(key)} --home REGION`,
    })
  if (format === 'json') context.out.line(JSON.stringify({ ...record, history }, null, 2))
  else context.out.line([recordTable([record]), '', historyTable(history)].join('\n'))
}

const REGION_NAME = 'is the name of a region'

/** The control plane is asked in pieces: a million keys in one statement would hold it for long. */
const PIECE = 10_000

async function judge(config: Config, controlPlane: ControlPlane, keys: readonly string[]): Promise<ReadonlyMap<string, string>> {
  const refused = new Map(keys.filter(key => isRegion(config, key)).map(key => [key, REGION_NAME]))
  for (let i = 0; i < keys.length; i += PIECE)
    for (const { key, homeRegion } of await controlPlane.ownership(keys.slice(i, i + PIECE)))
      refused.set(key, `is registered already, at ${homeRegion}`)
  return refused
}

function isRegion(config: Config, name: string): boolean {
  return config.regions.some(region => region.name === name)
}

function needRegion(config: Config, name: string): void {
  if (isRegion(config, name)) return
  const names = config.regions.map(region => region.name)
  throw new HomeregionError('unknown-region', {
    fact: `there is no region ${showKey(name)}; ${suggestion(name, names)}`,
    state: 'Nothing was changed.',
    next: 'homeregion config show',
  })
}

function refuseKey(key: string, why: string): HomeregionError {
  return new HomeregionError('invalid-key', { fact: `${showKey(key)} ${why}`, state: 'Nothing was changed.', next: 'homeregion key list' })
}

function print(context: CliContext, format: 'text' | 'json', records: readonly OwnershipRecord[]): void {
  if (format === 'json') context.out.line(JSON.stringify(records, null, 2))
  else context.out.line(records.length === 0 ? 'no keys' : recordTable(records))
}

function recordTable(records: readonly OwnershipRecord[]): string {
  return renderTable(
    ['key', 'home', 'epoch', 'state', 'target', 'since'],
    records.map(r => [showKey(r.key), r.homeRegion, String(r.epoch), r.state, r.targetRegion ?? '-', r.changedAt]),
  )
}

function historyTable(rows: readonly LogRow[]): string {
  return renderTable(
    ['seq', 'transition', 'state', 'home', 'epoch', 'run', 'at', 'by'],
    rows.map(r => [String(r.seq), r.transition, r.state, r.homeRegion, String(r.epoch), r.runId ?? '-', r.changedAt, r.changedBy]),
  )
}
