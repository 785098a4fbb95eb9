import pg from 'pg'
import type { DatabaseLogin } from '../../domain/config.ts'
import { errorText } from '../postgres/connection.ts'
import { endSession, ownSession } from './own-session.ts'

/** Whether a login is let in. `refused`: by the server, for who it is; anything else that kept it out decides nothing. */
export type LoginAnswer = {
  readonly outcome: 'admitted' | 'refused' | 'unknown'
  readonly sqlstate: string | null
  /** In the server's words, without secrets. */
  readonly message: string
}

/** Right password, but the role may not log in (or pg_hba.conf says no). */
export const NOT_PERMITTED = '28000'
/** Wrong password. */
export const WRONG_PASSWORD = '28P01'

/** Logs in and out again; nothing is changed. A session of its own, because who is in already is not asked again. */
export async function tryLogin(login: DatabaseLogin, password: string | null, timeoutMs: number): Promise<LoginAnswer> {
  const client = ownSession({ login, password, application: 'homeregion probe', timeoutMs })
  try {
    await client.connect()
    const { rows } = await client.query<{ user: string }>('select session_user::text as user')
    return { outcome: 'admitted', sqlstate: null, message: `logged in as ${rows[0]?.user ?? 'nobody'}` }
  } catch (error) {
    const sqlstate = error instanceof pg.DatabaseError ? (error.code ?? null) : null
    return { outcome: sqlstate?.startsWith('28') === true ? 'refused' : 'unknown', sqlstate, message: errorText(error) }
  } finally {
    await endSession(client, 500)
  }
}
