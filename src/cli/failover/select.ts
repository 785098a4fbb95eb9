import { readKeysFile } from '../../adapters/files/keys-file.ts'
import type { Config } from '../../domain/config.ts'
import { suggestion } from '../../domain/did-you-mean.ts'
import { formatMs } from '../../domain/duration.ts'
import { HomeregionError } from '../../domain/errors.ts'
import { parseKey, showKey } from '../../domain/key.ts'
import type { OwnershipRecord } from '../../domain/ownership.ts'
import type { ControlPlane } from '../../domain/ports.ts'
import type { Engine } from '../../engine/context.ts'
import { forcedSettings, patienceMs } from '../../engine/forced-move.ts'
import { lookAtRegion, type Vantage } from '../../engine/vantage.ts'

export type Pair = {
  readonly source: string
  readonly target: string
  /** Left out, and found by looking. */
  readonly found: boolean
  /** The look that found the source; null: it was named, and nobody has looked. */
  readonly vantage: Vantage | null
}

/** Which region is left and which is entered. Two regions and one of them dark say it by themselves; it is then shown and confirmed. */
export async function pairOf(engine: Engine, config: Config, flags: { readonly from?: string; readonly to?: string }): Promise<Pair> {
  const names = config.regions.map(r => r.name)
  for (const name of [flags.from, flags.to]) if (name !== undefined && !names.includes(name)) throw unknownRegion(name, names)
  if (flags.from !== undefined && flags.from === flags.to)
    throw new HomeregionError('same-region', {
      fact: `${flags.from} is both left and entered`,
      state: 'Nothing was changed.',
      next: 'homeregion failover --from R --to R',
    })
  const other = (name: string) => (names.length === 2 ? names.find(n => n !== name) : undefined)
  const named = flags.from ?? (flags.to === undefined ? undefined : other(flags.to))
  const vantage = named === undefined ? await theDarkOne(engine, config) : null
  const source = named ?? vantage?.region
  if (source === undefined) throw new RangeError('no region was found and none was named')
  const target = flags.to ?? other(source)
  if (target === undefined || target === source)
    throw usage(
      `--to is not given, and the configuration has ${names.length} regions: ${names.join(', ')}`,
      'homeregion failover --from R --to R',
    )
  return { source, target, found: flags.from === undefined || flags.to === undefined, vantage }
}

async function theDarkOne(engine: Engine, config: Config): Promise<Vantage> {
  const names = config.regions.map(r => r.name)
  const hint = 'homeregion failover --from R --to R'
  if (names.length !== 2) throw usage(`--from is not given, and the configuration has ${names.length} regions: ${names.join(', ')}`, hint)
  const { darkAfterMs } = config.policy
  const looks = await Promise.all(
    names.map(async name => await lookAtRegion(engine, name, darkAfterMs, patienceMs(forcedSettings(config, name)))),
  )
  const dark = looks.filter(look => look.contact === null)
  const [only] = dark
  if (dark.length === 1 && only !== undefined) return only
  const what = dark.length === 0 ? `no region is dark: both were reached within ${formatMs(darkAfterMs)}` : 'both regions are dark'
  throw usage(`--from is not given, and ${what}`, hint)
}

const PAGE = 10_000

/** One report with every problem and its line, before anything moves. */
async function ofFile(
  controlPlane: ControlPlane,
  source: string,
  typed: readonly string[],
  file: string,
): Promise<readonly OwnershipRecord[]> {
  if (typed.length > 0) throw usage('keys are given both on the command line and by --keys-file', 'homeregion failover --keys-file FILE')
  const records: OwnershipRecord[] = []
  const why = (key: string, record: OwnershipRecord | undefined): [string, string][] => {
    if (record === undefined) return [[key, 'is not registered']]
    return record.homeRegion === source ? [] : [[key, `is at home in ${record.homeRegion}, not in ${source}`]]
  }
  const judge = async (read: readonly string[]) => {
    for (let i = 0; i < read.length; i += PAGE) records.push(...(await controlPlane.ownership(read.slice(i, i + PAGE))))
    const known = new Map(records.map(r => [r.key, r]))
    return new Map(read.flatMap(key => why(key, known.get(key))))
  }
  await readKeysFile(file, { judge })
  return records
}

/** The keys asked for, or all that are at home in the source, ordered by key. */
export async function recordsOf(
  controlPlane: ControlPlane,
  source: string,
  asked: readonly string[],
  keysFile?: string,
): Promise<readonly OwnershipRecord[]> {
  if (keysFile !== undefined) return await ofFile(controlPlane, source, asked, keysFile)
  if (asked.length === 0) return await atHome(controlPlane, source)
  const keys = asked.map(parseKey)
  const seen = new Set<string>()
  const twice = keys.find(key => seen.size === seen.add(key).size)
  if (twice !== undefined) throw usage(`${showKey(twice)} is given twice`, 'homeregion failover --help')
  const records = await controlPlane.ownership(keys)
  const known = new Map(records.map(r => [r.key, r]))
  const problems = keys.flatMap(key => {
    const record = known.get(key)
    if (record === undefined) return [`${showKey(key)} is not registered`]
    return record.homeRegion === source ? [] : [`${showKey(key)} is at home in ${record.homeRegion}, not in ${source}`]
  })
  if (problems.length > 0)
    throw new HomeregionError('unknown-key', {
      fact: `${problems.slice(0, 5).join('; ')}${problems.length > 5 ? `; +${problems.length - 5} more` : ''}`,
      state: 'Nothing was changed.',
      next: `homeregion key list --home ${source}`,
    })
  return records
}

// All of a big region in one answer: it is read here while the next rows are on their way, and sorted there once. 40 MB of memory.
const REGION_PAGE = 100_000

async function atHome(controlPlane: ControlPlane, source: string): Promise<readonly OwnershipRecord[]> {
  const all: OwnershipRecord[] = []
  for (;;) {
    const last = all.at(-1)
    const page = await controlPlane.listOwnership({
      homeRegion: source,
      limit: REGION_PAGE,
      ...(last === undefined ? {} : { after: last.key }),
    })
    for (const record of page) all.push(record)
    if (page.length < REGION_PAGE) return all
  }
}

export function usage(fact: string, next: string): HomeregionError {
  return new HomeregionError('usage', { fact, state: 'Nothing was changed.', next })
}

function unknownRegion(name: string, names: readonly string[]): HomeregionError {
  return new HomeregionError('unknown-region', {
    fact: `there is no region ${showKey(name)}; ${suggestion(name, names)}`,
    state: 'Nothing was changed.',
    next: 'homeregion config show',
  })
}
