import pg from 'pg'
import type { DatabaseLogin, SecretReference } from '../../domain/config.ts'
import { type ErrorCode, HomeregionError } from '../../domain/errors.ts'

export type Secrets = { read(reference: SecretReference): Promise<string> }

export type Statement = { readonly sql: string; readonly parameters?: readonly unknown[] }
export type Row = Record<string, unknown>
export type Rows = { readonly rows: readonly Row[]; readonly count: number }

/** `read`: trying again is harmless. `write`: a lost answer leaves the outcome unknown. */
export type Effect = 'read' | 'write'

/**
 * One lazily opened, pipelined session. Statements are sent at once and answered in order, so calls made in the same tick share
 * a round trip, and a transaction costs one. After a fault the session is thrown away and the next call opens another.
 */
export type Connection = {
  /** Opens the session if it is not open: used to pay for the connection before time matters. */
  warm(): Promise<void>
  query(effect: Effect, sql: string, parameters?: readonly unknown[], timeoutMs?: number): Promise<Rows>
  /**
   * BEGIN, the statements, COMMIT in one round trip. A statement that must refuse has to raise: the commit is already on its way.
   * @throws pg's DatabaseError of the first statement that failed (rolled back), or a `HomeregionError`
   */
  transaction(effect: Effect, statements: readonly Statement[], timeoutMs?: number): Promise<readonly Rows[]>
  /** The statements in a transaction that is rolled back, whatever they answer: their plans and functions are ready when time matters. */
  rehearse(statements: readonly Statement[]): Promise<void>
  close(): Promise<void>
}

export type ConnectionOptions = {
  readonly login: DatabaseLogin
  readonly secrets: Secrets
  /** Whose database this is, for messages: `region-a database`. */
  readonly name: string
  readonly applicationName: string
  readonly callTimeoutMs: number
  readonly unreachable: Extract<ErrorCode, 'control-plane-unreachable' | 'region-unreachable'>
  /** The server gives up waiting for a lock a little before we do, and says that it rolled back: else a lock somebody holds is a lost answer. */
  readonly boundLocks?: boolean
  /** Sets nothing at the session's start, which poolers refuse: only our own deadline bounds a call then. */
  readonly bare?: boolean
}

export function createConnection(options: ConnectionOptions): Connection {
  let current: Promise<pg.Client> | null = null
  let connected: pg.Client | null = null

  const open = async (bare: boolean): Promise<pg.Client> => {
    const password = options.login.password === null ? undefined : await options.secrets.read(options.login.password)
    const client = new pg.Client({
      connectionString: options.login.url,
      application_name: options.applicationName,
      connectionTimeoutMillis: options.callTimeoutMs,
      keepAlive: true,
      pipeline: true,
      types: { getTypeParser },
      // The server's own bounds, a little longer than ours, so that nothing of a call we gave up on lives on for ever.
      ...(bare ? {} : { statement_timeout: options.callTimeoutMs * 2, idle_in_transaction_session_timeout: options.callTimeoutMs * 2 }),
      ...(bare || options.boundLocks !== true ? {} : { lock_timeout: lockBound(options.callTimeoutMs) }),
    })
    // Set afterwards: what a connection string does not say wins over the option beside it, and an empty password is what it says.
    if (password !== undefined) client.password = password
    client.on('error', () => forget(client))
    client.on('end', () => forget(client))
    try {
      await client.connect()
      connected = client
      return client
    } catch (error) {
      // What an address leads to is not always known: a pooler there says so in this way.
      if (!bare && error instanceof pg.DatabaseError && error.code === UNSUPPORTED_SETTING) return await open(true)
      throw unreachable(options, error)
    }
  }

  const forget = (client: pg.Client) => {
    if (client !== connected) return
    connected = null
    current = null
  }

  // Taken before anything is awaited: calls made in one tick on a closed session share the one that opens.
  const session = (): Promise<pg.Client> => {
    if (current !== null) return current
    const opening = open(options.bare === true)
    current = opening
    opening.catch(() => {
      if (current === opening) current = null
    })
    return opening
  }

  const drop = (client: pg.Client) => {
    forget(client)
    client.connection.stream.destroy()
  }

  const bounded = async <T>(client: pg.Client, effect: Effect, timeoutMs: number, work: Promise<T>): Promise<T> => {
    let timer: NodeJS.Timeout | undefined
    const late = new Promise<never>((_, reject) => {
      timer = setTimeout(() => {
        reject(lost(options, effect, `no answer within ${timeoutMs} ms`))
        drop(client)
      }, timeoutMs)
    })
    try {
      return await Promise.race([work, late])
    } catch (error) {
      if (error instanceof pg.DatabaseError && !endsSession(error)) throw error
      if (error instanceof HomeregionError) throw error
      drop(client)
      throw lost(options, effect, errorText(error), error)
    } finally {
      clearTimeout(timer)
    }
  }

  return {
    warm: async () => {
      await session()
    },
    query: async (effect, sql, parameters = [], timeoutMs = options.callTimeoutMs) => {
      const client = await session()
      return await bounded(client, effect, timeoutMs, client.query<Row>(sql, [...parameters]).then(shape))
    },
    transaction: async (effect, statements, timeoutMs = options.callTimeoutMs) => {
      const client = await session()
      // In one packet where it fits: a way that breaks in between leaves a server that waits for the rest, with its locks.
      const { stream } = client.connection
      stream.cork()
      const sent = [
        client.query('begin'),
        ...statements.map(s => client.query<Row>(s.sql, [...(s.parameters ?? [])])),
        client.query<Row>('commit'),
      ]
      stream.uncork()
      const answers = Promise.allSettled(sent).then(results => {
        const failed = results.find(r => r.status === 'rejected')
        if (failed !== undefined) throw failed.reason
        const done = results.map(r => (r.status === 'fulfilled' ? r.value : undefined)).filter(r => r !== undefined)
        // A commit that follows a failed statement is answered with ROLLBACK and no error of its own.
        if (done.at(-1)?.command !== 'COMMIT') throw new Error('the server rolled the transaction back')
        return done.slice(1, -1).map(shape)
      })
      return await bounded(client, effect, timeoutMs, answers)
    },
    rehearse: async statements => {
      const client = await session()
      const all = [{ sql: 'begin' }, ...statements, { sql: 'rollback' }]
      const sent = all.map((s: Statement) => client.query<Row>(s.sql, [...(s.parameters ?? [])]))
      await bounded(client, 'read', options.callTimeoutMs, Promise.allSettled(sent))
    },
    close: async () => {
      const client = await current?.catch(() => null)
      current = null
      if (client === undefined || client === null) return
      const ended = client.end().catch(() => undefined)
      await Promise.race([ended, new Promise(resolve => setTimeout(resolve, 500).unref())])
      // A server that does not hang up would keep a command alive that has said everything; all that was asked has been answered.
      client.connection.stream.destroy()
    },
  }
}

/** How long the server may wait for a lock in a call that is waited for so long. */
export function lockBound(timeoutMs: number): number {
  return Math.ceil(timeoutMs * 0.8)
}

/** Text of any error, without its stack; drivers put no secrets there. */
export function errorText(error: unknown): string {
  if (error instanceof AggregateError && error.errors.length > 0) return error.errors.map(errorText).join('; ')
  return error instanceof Error ? error.message || error.name : String(error)
}

function shape(result: pg.QueryResult<Row>): Rows {
  return { rows: result.rows, count: result.rowCount ?? 0 }
}

// protocol_violation: how PgBouncer answers a setting at the session's start that it does not know.
const UNSUPPORTED_SETTING = '08P01'
const INT8 = 20
// bigint as number: epochs, tokens and counts stay far below 2^53.
function getTypeParser(oid: number, format?: 'text' | 'binary'): (value: string) => unknown {
  return oid === INT8 ? Number : (pg.types.getTypeParser as (oid: number, format?: string) => (value: string) => unknown)(oid, format)
}

/** Class 57P (shutdown, crash) and 08 (connection) end the session; with a write under way its outcome is not known. */
function endsSession(error: pg.DatabaseError): boolean {
  return /^(57P0|08)/.test(error.code ?? '')
}

function unreachable(options: ConnectionOptions, error: unknown): HomeregionError {
  if (error instanceof HomeregionError) return error
  return new HomeregionError(
    options.unreachable,
    { fact: `${options.name} cannot be reached: ${errorText(error)}`, next: 'homeregion doctor' },
    {
      cause: error,
      retriable: true,
      fields: { name: options.name, sqlstate: error instanceof pg.DatabaseError ? (error.code ?? null) : null },
    },
  )
}

function lost(options: ConnectionOptions, effect: Effect, why: string, cause?: unknown): HomeregionError {
  if (effect === 'read')
    return new HomeregionError(
      options.unreachable,
      { fact: `${options.name} did not answer: ${why}`, next: 'homeregion doctor' },
      { cause, retriable: true, fields: { name: options.name } },
    )
  return new HomeregionError(
    'outcome-unknown',
    { fact: `${options.name}: the answer to a write was lost (${why}); it may or may not have been committed` },
    { cause, fields: { name: options.name } },
  )
}
