import { formatMs } from '../domain/duration.ts'
import { isHomeregionError } from '../domain/errors.ts'
import { fail, type Observation, pass } from '../domain/evidence.ts'
import type { Sight } from '../domain/loss.ts'
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

/** Asks the region itself, and what the agents and the lease say of it. @throws `control-plane-unreachable` */
export async function lookAtRegion(engine: Engine, region: string, darkAfterMs: number, patienceMs: number): Promise<Vantage> {
  const [told, leases, database, kafka] = await Promise.all([
    engine.controlPlane.sights(),
    engine.controlPlane.leaseStates(),
    tried(engine, patienceMs, engine.region(region).facts()),
    tried(engine, patienceMs, engine.stream(region).brokers()),
  ])
  const lease = leases.find(l => l.region === region && l.generation > 0)
  const sights: readonly Sight[] = [
    { region, vantage: THIS_HOST, what: 'database', lastContactAgeMs: database.reached ? 0 : null },
    { region, vantage: THIS_HOST, what: 'kafka', lastContactAgeMs: kafka.reached ? 0 : null },
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
  const young = sights
    .filter(s => MAY_WRITE.includes(s.what) && s.lastContactAgeMs !== null && s.lastContactAgeMs < darkAfterMs)
    .toSorted((a, b) => (a.lastContactAgeMs ?? 0) - (b.lastContactAgeMs ?? 0))
  return { region, sights, own: [`database ${database.text}`, `Kafka ${kafka.text}`], contact: young[0] ?? null }
}

export function describeContact({ vantage, what, lastContactAgeMs }: Sight): string {
  return `${vantage} reached its ${what} ${lastContactAgeMs === 0 ? 'just now' : `${formatMs(lastContactAgeMs ?? 0)} ago`}`
}

export function darkness(vantage: Vantage, darkAfterMs: number): Observation {
  const required = `no contact with its database within ${formatMs(darkAfterMs)}`
  const observer = `this host, agents and lease, of ${vantage.region}`
  const facts = { sights: vantage.sights.map(s => ({ ...s })) }
  if (vantage.contact !== null) return fail(observer, required, describeContact(vantage.contact), facts)
  const last = vantage.sights.filter(s => s.lastContactAgeMs !== null && s.vantage !== THIS_HOST).map(describeContact)
  return pass(observer, required, [`this host: ${vantage.own.join(', ')}`, ...last].join('; '), facts)
}

type Tried = { readonly reached: boolean; readonly text: string }

/** A refusal is an answer: whatever says no is there. Only silence, or nothing at the address, is none. */
async function tried(engine: Engine, patienceMs: number, call: Promise<unknown>): Promise<Tried> {
  const silence = new AbortController()
  const answer = call.then(
    (): Tried => ({ reached: true, text: 'answers' }),
    (error: unknown): Tried => {
      const text = isHomeregionError(error) ? error.text.fact : error instanceof Error ? error.message : String(error)
      return answered(error) ? { reached: true, text: `answers: ${text}` } : { reached: false, text: `does not answer: ${text}` }
    },
  )
  const late = engine.clock
    .sleep(patienceMs, silence.signal)
    .then((): Tried => ({ reached: false, text: `does not answer within ${formatMs(patienceMs)}` }))
  try {
    return await Promise.race([answer, late])
  } finally {
    silence.abort()
  }
}

function answered(error: unknown): boolean {
  if (isHomeregionError(error, 'kafka-unreachable')) return false
  if (!isHomeregionError(error, 'region-unreachable')) return true
  const sqlstate = error.fields['sqlstate']
  // Class 08 is what a pooler says when the database behind it is gone.
  return typeof sqlstate === 'string' && !sqlstate.startsWith('08')
}
