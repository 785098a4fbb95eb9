import pg from 'pg'
import type { DatabaseLogin } from '../../domain/config.ts'
import { HomeregionError } from '../../domain/errors.ts'
import { errorText, type Row, type Rows, type Secrets } from './connection.ts'

/** `name` makes it a prepared statement of the session: for statements that never change. */
export type ServiceStatement = { readonly name?: string; readonly sql: string; readonly parameters?: readonly unknown[] }

export type ServiceTransaction = {
  /** Sent at once; statements of one tick share a round trip. */
  query(statement: ServiceStatement): Promise<Rows>
  /** Sent at once and not waited for; its failure fails the transaction at the commit. */
  send(statement: ServiceStatement): void
}

export interface ServicePool {
  query(statement: ServiceStatement): Promise<Rows>
  /**
   * BEGIN, the work, COMMIT at READ COMMITTED. The commit leaves together with the last statements that were only sent.
   * @throws SqlFailure (rolled back), `region-unreachable` (nothing committed), `outcome-unknown` (the answer to the commit was lost),
   * or what `work` threw (rolled back)
   */
  transaction<T>(work: (tx: ServiceTransaction) => Promise<T>): Promise<T>
  close(): Promise<void>
}

/** A statement that the server refused. */
export class SqlFailure extends Error {
  readonly sqlstate: string
  /** DETAIL, where the server gave one. */
  readonly detail: string | null

  constructor(cause: pg.DatabaseError) {
    super(cause.message, { cause })
    this.name = 'SqlFailure'
    this.sqlstate = cause.code ?? 'XX000'
    this.detail = cause.detail ?? null
  }
}

export type ServicePoolOptions = {
  readonly login: DatabaseLogin
  readonly secrets: Secrets
  /** Whose database this is, for messages. */
  readonly name: string
  readonly applicationName: string
  readonly size: number
  readonly callTimeoutMs: number
}

export function clientSettings(options: Omit<ServicePoolOptions, 'size' | 'name'>): pg.ClientConfig {
  return {
    connectionString: options.login.url,
    application_name: options.applicationName,
    connectionTimeoutMillis: options.callTimeoutMs,
    keepAlive: true,
  }
}

/** A client that asks for its password when it connects. pg lets a URL without a password win over the option beside it, so it is set afterwards. */
export function clientOf(options: Omit<ServicePoolOptions, 'size' | 'name'>): new (config?: pg.ClientConfig) => pg.Client {
  const { password } = options.login
  return class extends pg.Client {
    constructor(config?: pg.ClientConfig) {
      super(config)
      // pg calls a function when the server asks; its types know strings only.
      const ask: unknown = async () => (password === null ? '' : await options.secrets.read(password))
      this.password = ask as string
    }
  }
}

export function createServicePool(options: ServicePoolOptions): ServicePool {
  const pool = new pg.Pool({
    ...clientSettings(options),
    Client: clientOf(options),
    max: options.size,
    pipeline: true,
    query_timeout: options.callTimeoutMs,
    statement_timeout: options.callTimeoutMs,
    idle_in_transaction_session_timeout: options.callTimeoutMs,
    types: { getTypeParser },
  })
  // A session that ends while idle is no fault of any request: the pool opens another.
  pool.on('error', () => undefined)
  // Nor is one that ends while it is lent: the request learns it from its own statement, and an event nobody hears would end the process.
  pool.on('connect', client => void client.on('error', () => undefined))

  const connect = async (): Promise<pg.PoolClient> => {
    try {
      return await pool.connect()
    } catch (error) {
      throw unreachable(options.name, error)
    }
  }

  return {
    query: async statement => {
      const client = await connect()
      let broken = false
      try {
        return await run(client, statement)
      } catch (error) {
        if (error instanceof SqlFailure) throw error
        broken = true
        throw unreachable(options.name, error)
      } finally {
        client.release(broken)
      }
    },
    transaction: async work => {
      const client = await connect()
      const session = { name: options.name, client, broken: false }
      try {
        return await transact(session, work)
      } finally {
        client.release(session.broken)
      }
    },
    close: async () => {
      await Promise.race([pool.end().catch(() => undefined), new Promise(resolve => setTimeout(resolve, 1000).unref())])
    },
  }
}

type Session = { readonly name: string; readonly client: pg.PoolClient; broken: boolean }

async function transact<T>(session: Session, work: (tx: ServiceTransaction) => Promise<T>): Promise<T> {
  const sent: Promise<Rows>[] = []
  const send = (statement: ServiceStatement): Promise<Rows> => {
    const answer = run(session.client, statement)
    // Looked at below, all of them; a rejection may come before anybody waits for it.
    answer.catch(() => undefined)
    sent.push(answer)
    return answer
  }
  void send({ sql: 'begin isolation level read committed' })
  let result: T
  try {
    result = await work({ query: send, send: statement => void send(statement) })
  } catch (error) {
    await rollback(session)
    throw error instanceof SqlFailure || error instanceof HomeregionError || !session.broken ? error : unreachable(session.name, error)
  }
  const commit = session.client.query('commit')
  commit.catch(() => undefined)
  const answers = await Promise.allSettled(sent)
  const [refused] = answers.flatMap(a => (a.status === 'rejected' && a.reason instanceof SqlFailure ? [a.reason] : []))
  // After a refusal the server answers the commit, which is on its way already, with ROLLBACK.
  const command = await commit.then(
    result => result.command,
    (error: unknown) => errorText(error),
  )
  if (command === 'COMMIT') return result
  if (command !== 'ROLLBACK') session.broken = true
  if (refused !== undefined) throw refused
  if (command === 'ROLLBACK') throw unreachable(session.name, new Error('it rolled a transaction back by itself'))
  throw new HomeregionError(
    'outcome-unknown',
    { fact: `${session.name}: the answer to a commit was lost (${command}); it may or may not have been committed` },
    { retriable: true },
  )
}

async function rollback(session: Session): Promise<void> {
  try {
    await session.client.query('rollback')
  } catch {
    // A session that cannot roll back is closed, which rolls back.
    session.broken = true
  }
}

async function run(client: pg.PoolClient, statement: ServiceStatement): Promise<Rows> {
  try {
    const { rows, rowCount } = await client.query<Row>({
      text: statement.sql,
      values: [...(statement.parameters ?? [])],
      ...(statement.name === undefined ? {} : { name: statement.name }),
    })
    return { rows, count: rowCount ?? 0 }
  } catch (error) {
    // Classes 57P and 08 end the session: the server did not refuse, it went away.
    if (error instanceof pg.DatabaseError && !/^(57P|08)/.test(error.code ?? '')) throw new SqlFailure(error)
    throw error
  }
}

function unreachable(name: string, error: unknown): HomeregionError {
  if (error instanceof HomeregionError) return error
  return new HomeregionError(
    'region-unreachable',
    { fact: `${name} cannot be reached: ${errorText(error)}`, next: 'homeregion doctor' },
    { cause: error, retriable: true },
  )
}

const INT8 = 20
// bigint as number: epochs and versions stay far below 2^53.
function getTypeParser(oid: number, format?: 'text' | 'binary'): (value: string) => unknown {
  return oid === INT8 ? Number : (pg.types.getTypeParser as (oid: number, format?: string) => (value: string) => unknown)(oid, format)
}
