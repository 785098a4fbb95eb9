import { createHash } from 'node:crypto'
import type { Config, OutboxContract, RegionConfig } from '../../domain/config.ts'
import { guardFunctions, guards, guardTriggers } from './guards.ts'
import { leaseStopValues, leaseTexts, stoppingThere } from './lease-texts.ts'
import { identifier, literal, literalArray, plainName, relation } from './quoting.ts'
import { type BoundaryStatement, sqlStatements, sqlText } from './sql-file.ts'
import {
  boundaryRegion,
  callersThere,
  fencersThere,
  guardTexts,
  levellersThere,
  operatorsThere,
  regionsThere,
  regionValues,
  type WriterRegion,
  writerRegions,
} from './topology.ts'

/** Rises when the boundary's own tables change. */
export const BOUNDARY_VERSION = 4

/** First half of every advisory lock of a key: the letters HRGR. */
export const LOCK_SPACE = 1_213_354_066
/** Of a region: held by who makes one of its keys writable. */
const OPENING_SPACE = LOCK_SPACE + 1
/** Of a region: whether its fence stands does not change while it is held. */
const GATE_SPACE = LOCK_SPACE + 3

// New writers queue behind a waiting exclusive lock; at that moment they are being refused anyway, and one second is what a client bears.
const LOCK_TIMEOUT_MS = 1000

export type Boundary = {
  readonly statements: readonly BoundaryStatement[]
  readonly version: number
  /** Over all statements: a change of the configuration or of the guard's text changes it. */
  readonly hash: string
  /** What the catalogue has to show afterwards. */
  readonly expected: BoundaryExpectation
}

export type BoundaryExpectation = {
  readonly triggers: readonly { relation: string; plain: string; name: string; event: string; func: string; enabled: string }[]
  readonly functions: readonly { name: string; md5: string }[]
  /** Where the regions share the database: whose login each writer is. Else null. */
  readonly writers: readonly WriterRegion[] | null
  /** Regions there whose writes stop at their lease's end. */
  readonly stopping: readonly string[]
}

/** Everything `init` runs in a region's database, in order and in one transaction. Pure: the same configuration gives the same text. */
export function renderBoundary(config: Config, region: RegionConfig): Boundary {
  const body = statements(config, region)
  const hash = createHash('sha256').update(JSON.stringify(body)).digest('hex')
  const record = sqlStatements('finish.sql', { ...finishValues(config, region), config_hash: literal(hash) })
  return { statements: [...body, ...record], version: BOUNDARY_VERSION, hash, expected: expectation(config, region, body) }
}

function statements(config: Config, region: RegionConfig): readonly BoundaryStatement[] {
  const space = { lock_space: String(LOCK_SPACE), opening_space: String(OPENING_SPACE), gate_space: String(GATE_SPACE) }
  const { outbox, topology } = config
  const { common_lease, and_open, lease, at_commit } = leaseTexts(config, region)
  const stops = stoppingThere(config, region).length > 0
  const common = { common_case: sqlText(`common-case-${topology}.sql`).trim().replace('{{lease}}', common_lease) }
  const heartbeat = topology === 'shared' ? '' : '  if ep is null and homeregion.is_heartbeat(k) then return; end if;\n'
  const { publishedAt } = outbox.columns
  const columns = [...new Set(guards(config).map(g => g.key))]
  return [
    ...sqlStatements('schema.sql', { writable_home: topology === 'shared' ? ',\n  home_region   text not null' : '' }),
    ...sqlStatements(`region-${topology}.sql`, regionValues(config, region)),
    ...(topology === 'shared' ? [] : sqlStatements('guard-copies.sql', {})),
    ...sqlStatements('region-fence.sql', { ...space, ...guardTexts(config), callers: literalArray(callersThere(config, region)) }),
    ...sqlStatements('guard.sql', { ...space, ...guardTexts(config), lease, heartbeat }),
    ...sqlStatements('lease.sql', {
      ...guardTexts(config),
      operators: literalArray(operatorsThere(config, region)),
      stop_regions: literalArray(stoppingThere(config, region)),
      lease_triggers: leaseTriggers(config, stops),
    }),
    ...columns.flatMap(column =>
      sqlStatements('guard-column.sql', {
        ...space,
        ...common,
        ...guardFunctions(column),
        and_open,
        at_commit,
        column: identifier(column),
      }),
    ),
    ...(publishedAt === null
      ? []
      : sqlStatements('guard-outbox.sql', { column: identifier(outbox.columns.key), published_at: identifier(publishedAt) })),
    ...sqlStatements('partitions.sql', {}),
    ...sqlStatements('operations.sql', { ...space, lock_timeout: literal(`${LOCK_TIMEOUT_MS}ms`) }),
    ...sqlStatements(`operations-${topology}.sql`, topology === 'shared' ? {} : ownEvent(outbox, region, 'homeregion.barrier')),
    ...(topology === 'shared' ? [] : sqlStatements('heartbeat.sql', heartbeatValues(config, region))),
    ...(stops ? sqlStatements('lease-stop.sql', { ...leaseStopValues(config, region), outbox_key: identifier(outbox.columns.key) }) : []),
    ...(topology === 'shared' ? [] : sqlStatements('quarantine.sql', { ...space, ...quarantineValues(config, region) })),
    { sql: 'reset role', why: "Back to the administrator: triggers need the tables' owner." },
    { sql: 'grant usage on schema homeregion to public', why: 'The administrator has to be able to name the guard.' },
    ...guards(config).flatMap(guard =>
      sqlStatements('attach.sql', {
        relation: plainName(guard),
        relation_literal: literal(relation(guard)),
        triggers: literal(JSON.stringify(guardTriggers(guard, publishedAt, stops))),
        kind: literal(guard.kind),
        key_name: literal(guard.key),
      }),
    ),
    ...(topology === 'shared' ? sqlStatements('authority.sql', {}) : sqlStatements('barrier.sql', barrierGrants(outbox))),
  ]
}

/** Everything that has to fire for writes to stop at the lease's end. */
function leaseTriggers(config: Config, stops: boolean): string {
  const own = [
    ['homeregion.commit_check', 'homeregion_commit_check', 'O'],
    ['homeregion.lease', 'homeregion_lease_told', 'A'],
  ] as const
  const guarding = guards(config).flatMap(guard =>
    guardTriggers(guard, config.outbox.columns.publishedAt, stops).map(t => [relation(guard), t.name, t.enabled] as const),
  )
  return [...own, ...guarding].map(row => `(${row.map(literal).join(', ')})`).join(', ')
}

/** A barrier or heartbeat: in the service's own envelope, so that relay and consumer treat it like any event they do not understand. */
function ownEvent(
  outbox: OutboxContract,
  region: RegionConfig,
  type: 'homeregion.barrier' | 'homeregion.heartbeat',
): { outbox: string; columns: string; values: string; fields: string } {
  const c = outbox.columns
  const values: readonly (readonly [string | null, string])[] = [
    [c.eventId, 'p_barrier'],
    [c.key, 'p_key'],
    [c.aggregateType, `'homeregion'::pg_catalog.text`],
    [c.aggregateId, 'p_key'],
    [c.eventType, `${literal(type)}::pg_catalog.text`],
    [c.sourceRegion, `${literal(region.name)}::pg_catalog.text`],
    [c.homeRegion, `${literal(region.name)}::pg_catalog.text`],
    [c.ownerEpoch, 'p_epoch'],
    [c.aggregateVersion, '0'],
    [c.occurredAt, 'pg_catalog.clock_timestamp()'],
    [c.payload, 'pg_catalog.jsonb_build_object()'],
  ]
  // A service may use one column for two of them (the key as the aggregate's id): the first one fills it.
  const used = values.filter(([name], i) => name !== null && values.findIndex(([other]) => other === name) === i)
  const names = used.map(([name]) => identifier(name ?? ''))
  return {
    outbox: relation(outbox),
    columns: names.join(', '),
    values: names.map(n => `r.${n}`).join(', '),
    fields: used.map(([name, value]) => `${literal(name ?? '')}, ${value}`).join(', '),
  }
}

function heartbeatValues(config: Config, region: RegionConfig): Record<string, string> {
  const { outbox } = config
  return {
    ...ownEvent(outbox, region, 'homeregion.heartbeat'),
    outbox_literal: literal(relation(outbox)),
    key_name: literal(outbox.columns.key),
    operators: literalArray(operatorsThere(config, region)),
  }
}

function barrierGrants(outbox: OutboxContract): Record<string, string> {
  const mapped = Object.values(outbox.columns).filter(c => c !== null && c !== outbox.columns.publishedAt)
  const insertable = [...new Set(mapped)].map(c => identifier(c ?? '')).join(', ')
  return {
    outbox_schema: literal(outbox.schema),
    outbox_literal: literal(relation(outbox)),
    grant_outbox: literal(`grant insert (${insertable}) on ${relation(outbox)} to homeregion_owner`),
  }
}

function quarantineValues(config: Config, region: RegionConfig): Record<string, string> {
  return { region: literal(region.name), operators: literalArray(operatorsThere(config, region)) }
}

const READABLE = ['installed', 'ownership', 'state', 'guarded', 'fence', 'lease', 'levelled']

function finishValues(config: Config, region: RegionConfig): Record<string, string> {
  const readable = writerRegions(config) === null ? READABLE : [...READABLE, 'writer_region']
  const writers = regionsThere(config, region).flatMap(r => r.database.writers.map(w => w.role))
  return {
    region: literal(boundaryRegion(config, region)),
    version: String(BOUNDARY_VERSION),
    relations: literalArray(guards(config).map(relation)),
    observed: literalArray([...guards(config), config.inbox].map(relation)),
    operators: literalArray(operatorsThere(config, region)),
    readable: readable.map(t => `homeregion.${t}`).join(', '),
    fencers: literalArray(fencersThere(config, region)),
    levellers: literalArray(levellersThere(config, region)),
    readers: literalArray([...new Set(['homeregion_apply', ...writers])]),
  }
}

function expectation(config: Config, region: RegionConfig, body: readonly BoundaryStatement[]): BoundaryExpectation {
  const stopping = stoppingThere(config, region)
  return {
    stopping,
    triggers: guards(config).flatMap(guard =>
      guardTriggers(guard, config.outbox.columns.publishedAt, stopping.length > 0).map(t => ({
        relation: relation(guard),
        plain: plainName(guard),
        name: t.name,
        event: t.event,
        func: t.func,
        enabled: t.enabled,
      })),
    ),
    writers: writerRegions(config),
    functions: body.flatMap(({ sql }) => {
      const found = /^create or replace function homeregion\.(\w+)\([\s\S]*?\$body\$([\s\S]*)\$body\$/.exec(sql)
      return found === null
        ? []
        : [
            {
              name: found[1] ?? '',
              md5: createHash('md5')
                .update(found[2] ?? '')
                .digest('hex'),
            },
          ]
    }),
  }
}
