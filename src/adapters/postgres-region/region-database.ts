import type { Config, RegionConfig } from '../../domain/config.ts'
import { HomeregionError } from '../../domain/errors.ts'
import type { RegionDatabase } from '../../domain/ports.ts'
import type { Secrets } from '../postgres/connection.ts'
import { renderBoundary } from './boundary-sql.ts'
import { createEndpointProbes } from './endpoint-probe.ts'
import { guards } from './guards.ts'
import { aheadOf, highestToken, homeKeys } from './home-keys.ts'
import { lastApplied } from './last-applied.ts'
import { stoppingThere } from './lease-texts.ts'
import { createQuarantine, NO_QUARANTINE } from './quarantine.ts'
import { relation } from './quoting.ts'
import { readConditions, regionFacts } from './region-facts.ts'
import { createObservations } from './region-observations.ts'
import { createOperations } from './region-operations.ts'
import { regionPaths } from './region-paths.ts'
import { codedFor, operatorSessions } from './region-session.ts'
import { rehearsal, rehearsedLook } from './rehearsal.ts'
import { readStandbys } from './standbys.ts'
import { createWriteProbe } from './write-probe.ts'
import { auditWriters } from './writer-audit.ts'

/**
 * One region's own database. Changes go over a session of their own, and so does waiting for a key's lock: what waits (for a lock, or
 * for a big digest) never stands in front of a change.
 */
export function createRegionDatabase(region: RegionConfig, config: Config, secrets: Secrets): RegionDatabase {
  const session = operatorSessions(region, config, secrets)
  const changes = session('homeregion')
  const reads = session('homeregion observer')
  const operations = createOperations(changes, region.name)
  const locks = session('homeregion in-flight')
  const known = createOperations(reads, region.name)
  const waiting = createOperations(locks, region.name)
  const observations = createObservations(reads, config)
  // Behind the wait for the key's lock on the same session: a count asked for right after it is taken after the last writer ended.
  const afterWriters = createObservations(locks, config)
  const quarantine = config.topology === 'shared' ? NO_QUARANTINE : createQuarantine(reads, changes)
  const writers = createWriteProbe(region, config, secrets)
  const endpoints = createEndpointProbes(region, config, secrets)
  const coded = codedFor(region.name)
  return {
    region: region.name,
    warm: async () =>
      await coded(async () => {
        await Promise.all([
          changes.rehearse(rehearsal(region.name)),
          reads.warm(),
          locks.rehearse(rehearsedLook()),
          writers.warm(),
          endpoints.warm(),
        ])
      }),
    facts: async () =>
      await coded(
        async () =>
          await regionFacts(reads, renderBoundary(config, region).expected, [...guards(config), config.inbox].map(relation), region.name),
      ),
    paths: () => regionPaths(region, config, secrets),
    read: async key => await coded(async () => await known.read(key)),
    homeKeys: async page => await coded(async () => await homeKeys(reads, region.name, config.topology === 'independent', page)),
    // Beside `lastApplied`, which a forced failover asks at the same time, and not behind it.
    aheadOf: async (records, limit) => await coded(async () => await aheadOf(locks, region.name, records, limit)),
    highestToken: async keys => await coded(async () => await highestToken(reads, keys)),
    claim: async (key, owner, token) => await coded(async () => await operations.claim(key, owner, token)),
    drain: async (key, epoch, token) => await coded(async () => await operations.drain(key, epoch, token)),
    inFlight: async (key, waitMs) => await coded(async () => await waiting.inFlight(key, waitMs)),
    fence: async (key, epoch, token, id) => await coded(async () => await operations.fence(key, epoch, token, id)),
    open: async (key, epoch, token) => await coded(async () => await operations.open(key, epoch, token)),
    openMany: async (keys, token) => await coded(async () => await operations.openMany(keys, token)),
    follow: async (key, home, epoch, token) => await coded(async () => await operations.follow(key, home, epoch, token)),
    followMany: async keys => await coded(async () => await operations.followMany(keys)),
    register: async keys => await coded(async () => await operations.register(keys)),
    conditions: async () => await coded(async () => await readConditions(reads, { stopping: stoppingThere(config, region) }, region.name)),
    position: async (key, barrierEventId) =>
      await coded(async () => {
        await reads.warm()
        // Sent together after the fence's commit had returned: one round trip.
        const [lsn, row, digests] = await Promise.all([
          reads.query('read', 'select pg_current_wal_flush_lsn()::text as lsn'),
          known.read(key),
          observations.digests(key),
        ])
        if (row?.state !== 'FENCED' || row.barrierEventId !== barrierEventId) throw notFenced(region.name, key, row?.state ?? null)
        return { key, epoch: row.epoch, barrierEventId, lsn: String(lsn.rows[0]?.lsn), ...digests }
      }),
    digests: async key => await coded(async () => await observations.digests(key)),
    unpublished: async key => await coded(async () => await afterWriters.unpublished(key)),
    lastApplied: async keys => await coded(async () => await lastApplied(reads, config, keys)),
    inboxHas: async id => await coded(async () => await observations.inboxHas(id)),
    delayedEvents: async (key, epoch) => await coded(async () => await observations.delayedEvents(key, epoch)),
    quarantined: async filter => await coded(async () => await quarantine.quarantined(filter)),
    quarantineCount: async () => await coded(async () => await quarantine.quarantineCount()),
    decideQuarantined: async (ids, order) => await coded(async () => await quarantine.decideQuarantined(ids, order)),
    probeWrites: async (key, epoch, isolation) => await coded(async () => await writers.probe(key, epoch, isolation)),
    probeEndpoints: async (key, epoch) => await coded(async () => await endpoints.probe(key, epoch)),
    standbys: async lsn => await coded(async () => await readStandbys(reads, region, lsn)),
    rejections: async () => await coded(async () => await known.rejections()),
    auditWriters: async () => await coded(async () => await auditWriters(reads, config, region, renderBoundary(config, region).expected)),
    execute: async (statement, parameters) => await coded(async () => (await changes.query('write', statement, parameters)).count),
    close: async () => void (await Promise.all([changes.close(), reads.close(), locks.close(), writers.close(), endpoints.close()])),
  }
}

function notFenced(region: string, key: string, state: string | null): HomeregionError {
  return new HomeregionError('epoch-moved', {
    fact: `${region} database: ${key} is ${state ?? 'unknown there'}, not FENCED with the barrier of this run`,
    next: 'homeregion status',
  })
}
