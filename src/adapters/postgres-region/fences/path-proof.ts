import { randomUUID } from 'node:crypto'
import { type EndpointProbe, type ProbeResult, SQLSTATE, type StandbyReport } from '../../../domain/boundary.ts'
import type { Config, RegionConfig } from '../../../domain/config.ts'
import { fail, type Observation, pass, unknown } from '../../../domain/evidence.ts'
import type { Fence, FenceKind } from '../../../domain/fence.ts'
import type { Clock } from '../../../domain/ports.ts'
import { createConnection, errorText, type Secrets } from '../../postgres/connection.ts'
import { createEndpointProbes } from '../endpoint-probe.ts'
import { readStandbys } from '../standbys.ts'

/** How a fence that stands in the database answers a writer. The others' own proofs ask their own paths. */
const REFUSALS: Readonly<Partial<Record<FenceKind, readonly string[]>>> = {
  boundary: [SQLSTATE.regionFenced],
  credentials: ['28000', '28P01'],
  'read-only': ['42501'],
}
const READ_ONLY = '25006'

// A whole region is not fenced in a key's write stop: what streams may take a moment to arrive.
const SETTLE_MS = 2000
const PAUSE_MS = 20

/**
 * The fences of a region's database, proved on its other paths too: every declared endpoint refuses each writer, a standby there has the fence on
 * record, and every standby that the primary knows has it on its disk. Where there is no other path, it adds nothing.
 */
export function provedOnEveryPath(
  fences: readonly Fence[],
  region: RegionConfig,
  config: Config,
  secrets: Secrets,
  clock: Pick<Clock, 'monotonicMs' | 'sleep'>,
): readonly Fence[] {
  const reads = createConnection({
    login: region.database.operator,
    secrets,
    name: `${region.name} database`,
    applicationName: 'homeregion observer',
    callTimeoutMs: config.policy.callTimeoutMs,
    unreachable: 'region-unreachable',
  })
  const endpoints = createEndpointProbes(region, config, secrets)

  const prove = async (fence: Fence): Promise<readonly Observation[]> => {
    const { rows } = await reads.query('read', STANDING, [region.name])
    const own = rows.find(row => row.name === fence.name && row.state === 'applied')
    // It does not stand: its own proof says so, and there is nothing to look for elsewhere.
    if (own === undefined) return []
    const known = rows.flatMap(row => REFUSALS[row.kind as FenceKind] ?? [])
    const key = typeof own.key === 'string' ? own.key : null
    // A key that is at home nowhere meets the boundary for what it is.
    const refusals = key === null ? [...known, SQLSTATE.unknownKey, SQLSTATE.notHome] : known
    const seen: Seen = { name: fence.name, since: String(own.since), refusals }
    const until = clock.monotonicMs() + SETTLE_MS
    let lsn: string | null = null
    for (;;) {
      const asked: Promise<StandbyReport> = readStandbys(reads, region, lsn)
      const [report, probes] = await Promise.all([asked, endpoints.probe(key ?? randomUUID(), null)])
      lsn ??= report.lsn
      const observations = [...standbyObservations(report, region.name), ...probes.map(p => endpointObservation(p, region.name, seen))]
      const late = observations.some(o => o.verdict === 'unknown')
      if (!late || clock.monotonicMs() >= until) return observations
      await clock.sleep(PAUSE_MS)
    }
  }

  return fences.map((fence): Fence => {
    if (REFUSALS[fence.kind] === undefined) return fence
    return {
      ...fence,
      verify: async () => {
        const [own, elsewhere] = await Promise.all([
          fence.verify(),
          prove(fence).catch((error: unknown): readonly Observation[] => [
            unknown(`${region.name} database`, 'the fence holds on every other path', `not observed: ${errorText(error)}`),
          ]),
        ])
        return [...own, ...elsewhere]
      },
      close: async () => void (await Promise.all([fence.close(), reads.close(), endpoints.close()])),
    }
  })
}

const STANDING = `select f.name, f.kind, f.state, f.since::text as since,
    (select o.key from homeregion.ownership o where o.home_region = $1 and o.state = 'ACTIVE' order by o.key limit 1) as key
  from homeregion.fence f where f.region = $1`

type Seen = { readonly name: string; readonly since: string; readonly refusals: readonly string[] }

function endpointObservation(probe: EndpointProbe, region: string, seen: Seen): Observation {
  const observer = `${region} endpoint ${probe.endpoint}`
  const required = probe.kind === 'pooler' ? 'every write refused by the fence' : 'in recovery, and the fence on record there'
  const admitted = probe.probes.filter(p => p.outcome === 'admitted')
  const promoted = probe.kind === 'standby' && probe.inRecovery === false
  if (admitted.length > 0)
    return fail(
      observer,
      required,
      `ADMITTED${promoted ? ' (it was promoted)' : ''}: ${admitted.map(p => `${p.writer} wrote ${p.table}`).join('; ')}`,
    )
  if (probe.kind === 'pooler' && probe.inRecovery === true) return fail(observer, required, 'declared as a pooler, and leads to a standby')
  const hidden = probe.probes.find(p => p.role !== null && p.role !== p.writer)
  if (hidden !== undefined) return fail(observer, required, `gives ${hidden.writer} a session of ${hidden.role ?? '?'}: it hides the role`)
  const expected = probe.kind === 'standby' && !promoted ? [READ_ONLY, ...seen.refusals] : seen.refusals
  const undecided = probe.probes.filter(p => !expected.includes(p.sqlstate ?? ''))
  if (probe.probes.length === 0) return unknown(observer, required, 'no writer is declared: nothing was probed')
  if (undecided.length > 0) return unknown(observer, required, texts(undecided))
  const refused = `${probe.probes.length} of ${probe.probes.length} writes refused (${[...new Set(probe.probes.map(p => p.sqlstate))].join(', ')})`
  if (probe.kind === 'pooler') return pass(observer, required, refused)
  if (probe.unseen !== null) return unknown(observer, required, probe.unseen)
  if (probe.region !== region) return fail(observer, required, `leads to the database of ${probe.region ?? 'no region'}`)
  if (probe.fences?.[seen.name] !== seen.since) return unknown(observer, required, 'the fence is not on record there')
  return pass(observer, required, `${promoted ? 'promoted' : 'in recovery'}, on record since ${seen.since}, ${refused}`)
}

/** None where there is none. */
function standbyObservations({ lsn, standbys }: StandbyReport, region: string): readonly Observation[] {
  if (standbys.length === 0) return []
  const observer = `${region} database`
  const required = 'the fence on the disk of every standby'
  const late = standbys.filter(s => !s.flushed)
  if (late.length > 0)
    return [
      unknown(
        observer,
        required,
        late.map(s => `${s.name} (${s.state}) has flushed ${s.flushLsn ?? 'what cannot be seen'} of ${lsn}`).join('; '),
      ),
    ]
  return [pass(observer, required, standbys.map(s => s.name).join(', '))]
}

function texts(probes: readonly ProbeResult[]): string {
  return [...new Set(probes.map(p => `${p.writer}: ${p.message}`))].join('; ')
}
