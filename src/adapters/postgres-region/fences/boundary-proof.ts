import { type ProbeResult, SQLSTATE } from '../../../domain/boundary.ts'
import type { Config, RegionConfig } from '../../../domain/config.ts'
import { fail, type Observation, pass, unknown } from '../../../domain/evidence.ts'
import type { FenceKind } from '../../../domain/fence.ts'
import { type Connection, errorText } from '../../postgres/connection.ts'
import { renderBoundary } from '../boundary-sql.ts'
import { guardProblems } from '../region-facts.ts'
import type { FenceReading, RegionFence } from '../region-fence.ts'
import type { WriteProbe } from '../write-probe.ts'
import { named } from './open-transaction.ts'

type Subject = {
  readonly region: RegionConfig
  readonly config: Config
  readonly fence: Pick<RegionFence, 'read'>
  /** Over a session of its own. */
  readonly waiting: Pick<RegionFence, 'inFlight'>
  readonly reads: Connection
  readonly probe: WriteProbe
}

/** All keys pass the same guard and the same empty table; more keys would prove nothing more. */
const SAMPLE_KEYS = 2
/** A write that is just being refused holds its lock for an instant. */
const REFUSED_ONES_MS = 500
const ISOLATIONS = ['read committed', 'repeatable read'] as const

/** How another fence of the region answers a writer before the boundary is asked. */
const ANSWERED_FIRST: Readonly<Partial<Record<FenceKind, readonly string[]>>> = {
  credentials: ['28000', '28P01'],
  'read-only': ['42501', '25006'],
}

/** The row, the empty table, nobody in flight, the guards, and writes of keys at home here that are refused. One observation each. */
export async function proveBoundary(subject: Subject): Promise<readonly Observation[]> {
  const observer = `${subject.region.name} database`
  const reading = subject.fence.read()
  return await Promise.all([
    seen(observer, 'the boundary is closed for all keys, on record as applied', async required =>
      standing(observer, required, await reading),
    ),
    seen(observer, 'no key of the region is writable', async required => {
      const { writableKeys } = await reading
      const observed = `${writableKeys} writable`
      return writableKeys === 0
        ? pass(observer, required, observed, { writableKeys })
        : fail(observer, required, observed, { writableKeys })
    }),
    seen(observer, 'no transaction that was admitted is open', async required => {
      const open = await subject.waiting.inFlight(REFUSED_ONES_MS)
      if (open.length === 0) return pass(observer, required, '0 open')
      return fail(observer, required, `${open.length} open: ${open.map(named).join('; ')}`, { inFlight: open })
    }),
    seen(observer, 'the guard stands on every guarded table', async required => {
      const problems = await guardProblems(subject.reads, renderBoundary(subject.config, subject.region).expected)
      if (problems.length === 0) return pass(observer, required, 'complete, enabled, unchanged')
      return fail(observer, required, problems.join('; '), { problems, remedy: 'homeregion init' })
    }),
    seen(
      `${observer}, as its writers`,
      'every write refused',
      async required => await refusedWrites(subject, `${observer}, as its writers`, required, (await reading).others),
    ),
  ])
}

/** What could not be asked is unknown, and never the same as refused. */
async function seen(observer: string, required: string, look: (required: string) => Promise<Observation>): Promise<Observation> {
  return await look(required).catch((error: unknown) => unknown(observer, required, `not observed: ${errorText(error)}`))
}

function standing(observer: string, required: string, { standing: now }: FenceReading): Observation {
  if (now === null) return fail(observer, required, 'homeregion.fence has no row of it')
  const observed = `${now.state} since ${now.since ?? '?'}`
  const facts = { state: now.state, since: now.since }
  return now.state === 'applied' ? pass(observer, required, observed, facts) : fail(observer, required, observed, facts)
}

async function refusedWrites(
  { region, config, reads, probe }: Subject,
  observer: string,
  required: string,
  others: readonly FenceKind[],
): Promise<Observation> {
  const { rows } = await reads.query(
    'read',
    `select key from homeregion.ownership where home_region = $1 and state = 'ACTIVE' order by key limit $2`,
    [region.name, SAMPLE_KEYS],
  )
  const keys = rows.map(row => String(row.key))
  if (keys.length === 0) return pass(observer, required, 'no key is at home here: nothing to probe', { probes: 0 })
  if (config.regions.find(r => r.name === region.name)?.database.writers.length === 0)
    return unknown(observer, required, 'no writer is declared: nothing was probed')
  const probes: ProbeResult[] = []
  // One after the other: a writer's session is one, and so is its transaction.
  for (const key of keys) for (const isolation of ISOLATIONS) probes.push(...(await probe.probe(key, null, isolation)))
  const first = others.flatMap(kind => ANSWERED_FIRST[kind] ?? [])
  const admitted = probes.filter(p => p.outcome === 'admitted')
  const unseen = probes.filter(p => p.sqlstate !== SQLSTATE.regionFenced && !first.includes(p.sqlstate ?? ''))
  const facts = { keys, probes: probes.length, sqlstates: [...new Set(probes.map(p => p.sqlstate ?? 'none'))] }
  if (admitted.length > 0)
    return fail(observer, required, `ADMITTED: ${admitted.map(p => `${p.writer} wrote ${p.table} (${p.isolation})`).join('; ')}`, facts)
  if (unseen.length > 0)
    return unknown(observer, required, unseen.map(p => `${p.writer} on ${p.table} (${p.isolation}): ${p.message}`).join('; '), facts)
  const early = probes.filter(p => p.sqlstate !== SQLSTATE.regionFenced).length
  const note = early === 0 ? '' : `, ${early} of them by another fence before the boundary was asked`
  return pass(observer, required, `${probes.length} of ${probes.length} writes refused (${facts.sqlstates.join(', ')})${note}`, facts)
}
