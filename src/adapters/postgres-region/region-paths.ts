import type { Socket } from 'node:net'
import pg from 'pg'
import type { Config, DatabaseLogin, RegionConfig } from '../../domain/config.ts'
import type { PathAnswer, RegionPath } from '../../domain/ports.ts'
import { errorText, type Secrets } from '../postgres/connection.ts'
import { loginAt } from './endpoint-probe.ts'
import { endSession, ownSession } from './own-session.ts'

/**
 * Every configured way to the region's database from here: the operator's own, each writer's, and each endpoint's. One address is one way, whoever
 * goes it. A session of its own each time, since what is open already says nothing of the way.
 */
export function regionPaths(region: RegionConfig, config: Config, secrets: Secrets): readonly RegionPath[] {
  const { operator, writers, endpoints } = region.database
  const [writer] = writers
  const all: readonly { readonly name: string | null; readonly login: DatabaseLogin; readonly pooled: boolean }[] = [
    { name: null, login: operator, pooled: false },
    ...writers.map(w => ({ name: `writer ${w.role}`, login: w, pooled: false })),
    ...endpoints.flatMap(e => {
      // A pooler need not know the operator.
      const login = e.kind === 'pooler' ? writer : operator
      return login === undefined ? [] : [{ name: `${e.kind} ${e.name}`, login: loginAt(login, e), pooled: e.kind === 'pooler' }]
    }),
  ]
  const first = new Map<string, (typeof all)[number]>()
  for (const path of all) if (!first.has(addressOf(path.login))) first.set(addressOf(path.login), path)
  return [...first.values()].map(({ name, login, pooled }) => ({
    name,
    tryIt: async () => await tryPath(login, pooled, secrets, config.policy.callTimeoutMs),
  }))
}

function addressOf({ url }: DatabaseLogin): string {
  const { hostname, port, pathname, searchParams } = new URL(url)
  return [searchParams.get('host') ?? hostname, searchParams.get('port') ?? (port === '' ? '5432' : port), pathname].join(' ')
}

// A walreceiver that is connected has a row, also for who may not see what is in it.
const LOOK = `select pg_is_in_recovery() as standby, exists (select from pg_stat_wal_receiver) as receives`

async function tryPath(login: DatabaseLogin, pooled: boolean, secrets: Secrets, timeoutMs: number): Promise<PathAnswer> {
  // What keeps the secrets may be as dark as the region. Whoever answers that a password is wrong is there.
  const password = login.password === null ? null : await secrets.read(login.password).catch(() => '')
  const client = ownSession({ login, password, application: 'homeregion look', timeoutMs })
  try {
    await client.connect()
    const { rows } = await client.query<{ standby: boolean; receives: boolean }>(LOOK)
    return primaryBehind(rows[0]?.standby === true, rows[0]?.receives === true)
  } catch (error) {
    return whoRefused(error, pooled, (client.connection.stream as Socket).bytesRead > 0)
  } finally {
    await endSession(client, 100)
  }
}

/** A standby takes no write; that it still receives says that its primary is there, which does. */
function primaryBehind(standby: boolean, receives: boolean): PathAnswer {
  if (!standby) return { reached: true, text: 'answers' }
  if (receives) return { reached: true, text: 'a standby answers, and its primary still streams to it' }
  return { reached: false, text: 'only a standby answers, and it receives nothing: it may hold what would be lost' }
}

/** A refusal is an answer: whatever says no is there. A pooler answers for itself, with class 08, when nothing is behind it. */
function whoRefused(error: unknown, pooled: boolean, heard: boolean): PathAnswer {
  const text = errorText(error)
  const refused = error instanceof pg.DatabaseError && !/^08/.test(error.code ?? '08')
  // No certificate or password of ours that it takes: said by this end, about a server that spoke.
  const mistrusted = heard && !pooled && !(error instanceof pg.DatabaseError) && !isTransport(error)
  return refused || mistrusted ? { reached: true, text: `answers: ${text}` } : { reached: false, text: `does not answer: ${text}` }
}

function isTransport(error: unknown): boolean {
  if (!(error instanceof Error) || error instanceof AggregateError || 'syscall' in error) return true
  return /timeout|terminated|ended|closed/i.test(error.message)
}
