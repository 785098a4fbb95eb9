import type { Digest } from '../../domain/boundary.ts'
import type { Config, TableName } from '../../domain/config.ts'
import { HomeregionError } from '../../domain/errors.ts'
import type { Backlog, RegionDatabase } from '../../domain/ports.ts'
import type { Connection } from '../postgres/connection.ts'
import { identifier, plainName, relation } from './quoting.ts'

export type Observations = Pick<RegionDatabase, 'unpublished' | 'inboxHas' | 'delayedEvents' | 'digests'>

/** Callers of one turn of the event loop share one answer: it is asked for in the turn they asked, and a digest of many rows is dear. */
function sharedWithinTurn<T>(): (key: string, work: () => Promise<T>) => Promise<T> {
  const asked = new Map<string, Promise<T>>()
  return (key, work) => {
    const known = asked.get(key)
    if (known !== undefined) return known
    const answer = work()
    asked.set(key, answer)
    setImmediate(() => asked.delete(key))
    return answer
  }
}

// The key a second time: the inbox's column may be of another type.
const LATE_OF_KEY = '(select count(*) from homeregion.quarantine q where q.key = $3 and q.owner_epoch < $2)'

/** What proofs are read from: each call is one round trip, and each statement reads in a snapshot of its own, newer than the call. */
export function createObservations(connection: Connection, config: Config): Observations {
  const { outbox, inbox, idempotency } = config
  const read = async (sql: string, parameters: readonly unknown[]) => (await connection.query('read', sql, parameters)).rows[0] ?? {}
  const versioned = config.guarded.filter(t => t.versions !== null)
  // The inbox knows the ids of late events too, so that a second delivery is a duplicate; they were not applied.
  const late =
    config.topology === 'shared'
      ? 'false'
      : `exists (select from homeregion.quarantine q where q.event_id = i.${identifier(inbox.columns.eventId)}::text)`
  const shared = sharedWithinTurn<Awaited<ReturnType<RegionDatabase['digests']>>>()
  return {
    unpublished: async key => {
      const published = outbox.columns.publishedAt
      if (published === null) throw noMark(outbox)
      return backlog(await read(unpublishedSql(config, published), [key]))
    },
    inboxHas: async eventId =>
      (
        await read(
          `select exists (select from ${relation(inbox)} i where ${identifier(inbox.columns.eventId)} = $1 and not ${late}) as has`,
          [eventId],
        )
      ).has === true,
    delayedEvents: async (key, epoch) => {
      const c = inbox.columns
      const row = await read(
        `select count(*) as count, (extract(epoch from clock_timestamp() - max(${identifier(c.appliedAt)})) * 1000)::float8 as newest,
                ${config.topology === 'shared' ? '0' : LATE_OF_KEY} as quarantined
         from ${relation(inbox)} i where ${identifier(c.key)} = $1 and ${identifier(c.ownerEpoch)} < $2 and not ${late}`,
        config.topology === 'shared' ? [key, epoch] : [key, epoch, key],
      )
      return { count: Number(row.count), newestAgeMs: number(row.newest), quarantined: Number(row.quarantined) }
    },
    digests: async key =>
      await shared(key, async () => {
        const [ids, ...versions] = await Promise.all([
          idempotency === null
            ? null
            : read(setDigestSql(idempotency, idempotency.key, idempotency.id), [key]).then(row => digest(idempotency, row)),
          ...versioned.map(async t => digest(t, await read(versionDigestSql(t, t.key, t.versions), [key]))),
        ])
        return { versions: versions.filter(v => v !== null), idempotency: ids }
      }),
  }
}

function unpublishedSql(config: Config, published: string): string {
  const { outbox } = config
  const c = outbox.columns
  return `select count(*) over () as count, (extract(epoch from clock_timestamp() - ${identifier(c.occurredAt)}) * 1000)::float8 as oldest,
                 ${identifier(c.eventId)}::text as id
          from ${relation(outbox)} where ${identifier(c.key)} = $1 and ${identifier(published)} is null
          order by ${identifier(c.occurredAt)} limit 1`
}

function backlog(row: Record<string, unknown>): Backlog {
  if (row.count === undefined) return { count: 0, oldestAgeMs: null, oldestEventId: null }
  return { count: Number(row.count), oldestAgeMs: number(row.oldest), oldestEventId: String(row.id) }
}

/** Every aggregate with its version, in one byte order in both regions, whatever their collations. */
function versionDigestSql(table: TableName, key: string, columns: { aggregate: string; version: string } | null): string {
  const aggregate = identifier(columns?.aggregate ?? '')
  const version = identifier(columns?.version ?? '')
  return `select count(*) as rows, max(${version})::float8 as highest,
                 md5(coalesce(string_agg(${aggregate}::text || ':' || ${version}::text, ',' order by ${aggregate}::text collate "C", ${version}), '')) as hash
          from ${relation(table)} where ${identifier(key)} = $1`
}

function setDigestSql(table: TableName, key: string, id: string): string {
  return `select count(*) as rows, null as highest,
                 md5(coalesce(string_agg(${identifier(id)}::text, ',' order by ${identifier(id)}::text collate "C"), '')) as hash
          from ${relation(table)} where ${identifier(key)} = $1`
}

function digest(table: TableName, row: Record<string, unknown>): Digest {
  return { table: plainName(table), rows: Number(row.rows), highest: number(row.highest), hash: String(row.hash) }
}

function number(value: unknown): number | null {
  return value === null || value === undefined ? null : Number(value)
}

function noMark(outbox: TableName): HomeregionError {
  return new HomeregionError('config-invalid', {
    fact: `${plainName(outbox)} has no configured column that says when an event was published, so its backlog cannot be read there`,
  })
}
