import { formatMs } from '../domain/duration.ts'
import { isHomeregionError } from '../domain/errors.ts'
import { fail, type Observation, pass } from '../domain/evidence.ts'
import type { LeaseState } from '../domain/failover.ts'
import type { Sight } from '../domain/loss.ts'
import type { Clock, PathAnswer } from '../domain/ports.ts'
import type { Engine } from './context.ts'

/** Who sees a region, from everywhere that can be asked. */
export type Vantage = {
  readonly region: string
  readonly sights: readonly Sight[]
  /** What this host's own tries were answered, for reading. */
  readonly own: readonly string[]
  /** The newest contact that says that the region may still write; null: there is none young enough. */
  readonly contact: Sight | null
}

/**
 * A Kafka that answers holds events, and its being there is shown; what commits writes is the database. A lease that was granted and a heartbeat
 * that came through the outbox both say that the database was there.
 */
const MAY_WRITE: readonly Sight['what'][] = ['database', 'lease', 'heartbeat']

export const THIS_HOST = 'this host'

/** One try of this host, by a way that the configuration names. */
type OwnTry = { readonly vantage: string; readonly what: 'database' | 'kafka' } & PathAnswer
/** What this host's own tries to reach a region were answered. */
export type OwnTries = readonly OwnTry[]

/** By every way there is, side by side. Takes the whole patience where an address swallows everything, and no time where nobody is at it. */
export async function tryRegion(engine: Engine, region: string, patienceMs: number): Promise<OwnTries> {
  const databases = engine.region(region).paths()
  const brokers = engine.stream(region).brokers()
  return await Promise.all([
    ...databases.map(async ({ name, tryIt }): Promise<OwnTry> => {
      const vantage = name === null ? THIS_HOST : `${THIS_HOST} via ${name}`
      return { vantage, what: 'database', ...(await inTime(engine, patienceMs, tryIt())) }
    }),
    inTime(
      engine,
      patienceMs,
      brokers.then(() => ANSWERS),
    ).then((answer): OwnTry => ({ vantage: THIS_HOST, what: 'kafka', ...answer })),
  ])
}

/** Since when this process has tried each region without an answer, by its clock: its own looks are all it knows where no agent ever looked. */
const silentSince = new WeakMap<Clock, Map<string, number>>()

/** Between two tries of a region that nobody else has ever seen. */
const AGAIN_MS = 500

/** A Kafka that answers writes nothing. */
export function reachesDatabase(tries: OwnTries): boolean {
  return tries.some(t => t.reached && t.what === 'database')
}

/** How long this process has been trying in vain; 0 with an answer. */
function silentForMs({ clock }: Engine, region: string, tries: OwnTries): number {
  const since = silentSince.get(clock) ?? new Map<string, number>()
  silentSince.set(clock, since)
  if (reachesDatabase(tries)) since.delete(region)
  else since.set(region, since.get(region) ?? clock.monotonicMs())
  return clock.monotonicMs() - (since.get(region) ?? clock.monotonicMs())
}

/**
 * Asks the region itself, unless that was `tried` a moment ago, and what the agents and the lease say of it. One try that failed says little: where
 * nobody else has ever seen the region, it is tried again until that has gone on for as long as `darkAfterMs`.
 * @throws `control-plane-unreachable`
 */
export async function lookAtRegion(
  engine: Engine,
  region: string,
  darkAfterMs: number,
  patienceMs: number,
  tries: OwnTries | null = null,
): Promise<Vantage> {
  // Counted from before the first try: an address that swallows everything is silent from then on.
  if (tries === null) silentForMs(engine, region, [])
  const [told, leases, first] = await Promise.all([
    engine.controlPlane.sights(),
    engine.controlPlane.leaseStates(),
    tries ?? tryRegion(engine, region, patienceMs),
  ])
  let own = first
  const others = toldOf(region, told, leases)
  const alone = newestContact(others) === null
  while (silentForMs(engine, region, own) < darkAfterMs && alone && !reachesDatabase(own)) {
    await engine.clock.sleep(AGAIN_MS)
    own = await tryRegion(engine, region, patienceMs)
  }
  const sights: readonly Sight[] = [
    ...own.map(({ vantage, what, reached }) => ({ region, vantage, what, lastContactAgeMs: reached ? 0 : null })),
    ...others,
  ]
  const contact = newestContact(sights)
  return { region, sights, own: own.map(describeTry), contact: (contact?.lastContactAgeMs ?? darkAfterMs) < darkAfterMs ? contact : null }
}

/** What others say of a region: the agents, and the lease that one of them had granted. */
export function toldOf(region: string, told: readonly Sight[], leases: readonly LeaseState[]): readonly Sight[] {
  const lease = leases.find(l => l.region === region && l.generation > 0)
  return [
    ...told.filter(s => s.region === region && !(s.what === 'lease' && lease !== undefined)),
    ...(lease === undefined
      ? []
      : [
          {
            ...{ region, vantage: lease.grantedTo ?? 'an agent', what: 'lease' as const },
            lastContactAgeMs: Math.max(0, lease.durationMs + lease.marginMs - lease.leftMs),
          },
        ]),
  ]
}

/** The newest that says that the region may still write; null: nobody has ever seen it. */
export function newestContact(sights: readonly Sight[]): Sight | null {
  return (
    sights
      .filter(s => MAY_WRITE.includes(s.what) && s.lastContactAgeMs !== null)
      .toSorted((a, b) => (a.lastContactAgeMs ?? 0) - (b.lastContactAgeMs ?? 0))[0] ?? null
  )
}

export function describeContact({ vantage, what, lastContactAgeMs }: Sight): string {
  return `${vantage} reached its ${what} ${lastContactAgeMs === 0 ? 'just now' : `${formatMs(lastContactAgeMs ?? 0)} ago`}`
}

export function darkness(vantage: Vantage, darkAfterMs: number): Observation {
  const required = `no contact with its database within ${formatMs(darkAfterMs)}`
  const observer = `this host, agents and lease, of ${vantage.region}`
  const facts = { sights: vantage.sights.map(s => ({ ...s })) }
  if (vantage.contact !== null) return fail(observer, required, describeContact(vantage.contact), facts)
  const last = vantage.sights.filter(s => s.lastContactAgeMs !== null && !isOwn(s)).map(describeContact)
  return pass(observer, required, [...vantage.own, ...last].join('; '), facts)
}

/** A try of this host itself: it remembers no earlier one. */
export function isOwn({ vantage }: Pick<Sight, 'vantage'>): boolean {
  return vantage === THIS_HOST || vantage.startsWith(`${THIS_HOST} via `)
}

function describeTry({ vantage, what, text }: OwnTry): string {
  return `${vantage}: ${what === 'kafka' ? 'Kafka' : what} ${text}`
}

const ANSWERS: PathAnswer = { reached: true, text: 'answers' }

/** Only silence, or nothing at the address, is no answer; and nobody asked where the secret to ask with could not be read. */
async function inTime(engine: Engine, patienceMs: number, call: Promise<PathAnswer>): Promise<PathAnswer> {
  const silence = new AbortController()
  const answer = call.catch((error: unknown): PathAnswer => {
    const text = isHomeregionError(error) ? error.text.fact : error instanceof Error ? error.message : String(error)
    const silent = (['kafka-unreachable', 'region-unreachable', 'secret-unavailable'] as const).some(code => isHomeregionError(error, code))
    return silent ? { reached: false, text: `does not answer: ${text}` } : { reached: true, text: `answers: ${text}` }
  })
  const late = engine.clock
    .sleep(patienceMs, silence.signal)
    .then((): PathAnswer => ({ reached: false, text: `does not answer within ${formatMs(patienceMs)}` }))
  try {
    return await Promise.race([answer, late])
  } finally {
    silence.abort()
  }
}
