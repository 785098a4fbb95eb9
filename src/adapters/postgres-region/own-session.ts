import pg from 'pg'
import type { DatabaseLogin } from '../../domain/config.ts'

export type OwnSession = {
  readonly login: DatabaseLogin
  /** null: the server is given none. */
  readonly password: string | null
  readonly application: string
  readonly timeoutMs: number
}

/** A session for one look, not connected yet: what is open already says nothing of the way or of the login. End it with `endSession`. */
export function ownSession({ login, password, application, timeoutMs }: OwnSession): pg.Client {
  const client = new pg.Client({
    connectionString: login.url,
    application_name: application,
    connectionTimeoutMillis: timeoutMs,
    query_timeout: timeoutMs,
  })
  // Set afterwards: what a connection string does not say wins over the option beside it.
  if (password !== null) client.password = password
  client.on('error', () => undefined)
  return client
}

/** In order where the server takes part within `waitMs`, and by closing the socket where it does not. */
export async function endSession(client: pg.Client, waitMs: number): Promise<void> {
  const ended = client.end().catch(() => undefined)
  await Promise.race([ended, new Promise(resolve => setTimeout(resolve, waitMs).unref())])
  client.connection.stream.destroy()
}
