import type { BoundaryRow } from '../domain/boundary.ts'
import { formatMs } from '../domain/duration.ts'
import { fail, type Observation, pass, unknown } from '../domain/evidence.ts'
import { showKey } from '../domain/key.ts'
import type { OwnershipRecord } from '../domain/ownership.ts'
import type { ControlPlane, KnownRecord } from '../domain/ports.ts'
import type { Engine } from './context.ts'
import { inTime } from './in-time.ts'

export type AheadQuestion = {
  readonly target: string
  /** All but the source, which cannot be asked. */
  readonly others: readonly string[]
  readonly records: readonly KnownRecord[]
  readonly patienceMs: number
}

const NAMED = 3

/**
 * Whether a region knows a move that the control plane does not: it then lost commits (a replica that was behind has taken over, a backup was
 * restored), and a key it gives to the dark region may be written elsewhere this moment. Of regions that do not answer nothing is known, and the
 * record has to do; but for the target, which has to answer.
 */
export async function regionsAhead(engine: Engine, { target, others, records, patienceMs }: AheadQuestion): Promise<Observation> {
  const targetMs = Math.max(patienceMs, engine.policy.callTimeoutMs)
  const seen = await Promise.all(
    others.map(async name => {
      // The target has to answer, and has as long for many keys as any call; a third region may be as dark as the source.
      const waitMs = name === target ? targetMs : patienceMs
      return { name, ahead: await inTime(engine, waitMs, engine.region(name).aheadOf(records, NAMED), null) }
    }),
  )
  const answered = seen.flatMap(({ name, ahead }) => (ahead === null ? [] : [{ name, ...ahead }]))
  const silent = seen.flatMap(({ name, ahead }) => (ahead === null ? [name] : []))
  const observer = answered.length === 0 ? 'nobody' : `boundary of ${answered.map(a => a.name).join(', ')}`
  const required = 'no other home, and no later epoch, than the control plane has'
  const count = answered.reduce((sum, a) => sum + a.count, 0)
  if (count > 0) {
    const left = await Promise.all(
      answered.map(async ({ name, rows }) =>
        (await stillAhead(engine.controlPlane, rows)).map(({ row, record }) => describeAhead(name, row, record)),
      ),
    )
    const texts = left.flat()
    if (texts.length === 0)
      return unknown(
        observer,
        required,
        `somebody else moved ${answered
          .flatMap(a => a.rows)
          .map(row => showKey(row.key))
          .join(', ')} meanwhile; to be looked at again`,
      )
    return fail(observer, required, `the control plane has forgotten a move: ${firstOf(texts, NAMED, count)}`, { count })
  }
  if (silent.includes(target)) return unknown(observer, required, `${target} database: no answer within ${formatMs(targetMs)}`)
  const unasked = silent.length === 0 ? '' : `; nothing is known of ${silent.join(', ')}`
  return pass(observer, required, `${records.length} ${records.length === 1 ? 'key' : 'keys'} as the control plane has them${unasked}`)
}

type Ahead = { readonly row: BoundaryRow; readonly record: OwnershipRecord | undefined }

/** Of rows that were ahead of records, those that still are: the control plane is told of a move before any region, and the records were read first. */
export async function stillAhead(controlPlane: Pick<ControlPlane, 'ownership'>, rows: readonly BoundaryRow[]): Promise<readonly Ahead[]> {
  if (rows.length === 0) return []
  const records = new Map((await controlPlane.ownership(rows.map(row => row.key))).map(record => [record.key, record]))
  return rows
    .map(row => ({ row, record: records.get(row.key) }))
    .filter(
      ({ row, record }) =>
        record === undefined || row.epoch > record.epoch || (row.epoch === record.epoch && row.homeRegion !== record.homeRegion),
    )
}

export function describeAhead(region: string, row: BoundaryRow, record: KnownRecord | undefined): string {
  const known = record === undefined ? 'not at all' : `in ${record.homeRegion} under epoch ${record.epoch}`
  return `${region} has ${showKey(row.key)} at home in ${row.homeRegion} under epoch ${row.epoch}, the control plane ${known}`
}

/** The first of many, for a line that is read; `count` where there are more than these texts. */
export function firstOf(texts: readonly string[], atMost: number, count: number = texts.length): string {
  const named = texts.slice(0, atMost)
  return `${named.join('; ')}${count > named.length ? ` +${count - named.length} more` : ''}`
}
