import pg from 'pg'
import { APP_DATABASE } from '../../sandbox/layout.ts'

export type Hammer = {
  /** Logins that the server refused so far. */
  refused(): number
  /** Every SQLSTATE a client was given. */
  sqlstates(): readonly string[]
  stop(): Promise<void>
}

/** Clients that write as app_writer as fast as they can, and connect again at once, whatever ends them, with the secret of that moment. */
export function startHammer(secret: () => string, port: number, clients: number): Hammer {
  const seen = new Set<string>()
  let refused = 0
  let stopped = false
  const one = async (name: string) => {
    while (!stopped) {
      const client = new pg.Client({
        connectionString: `postgres://app_writer@127.0.0.1:${port}/${APP_DATABASE}`,
        connectionTimeoutMillis: 5_000,
        query_timeout: 5_000,
      })
      client.password = secret()
      client.on('error', () => undefined)
      try {
        await client.connect()
        while (!stopped) await client.query('insert into public.hammered (by_client) values ($1)', [name])
      } catch (error) {
        const state = error instanceof pg.DatabaseError ? (error.code ?? '?') : 'connection'
        seen.add(state)
        if (state.startsWith('28')) refused += 1
      } finally {
        await client.end().catch(() => undefined)
      }
    }
  }
  const all = Array.from({ length: clients }, async (_, i) => await one(`client ${i}`))
  return {
    refused: () => refused,
    sqlstates: () => [...seen],
    stop: async () => {
      stopped = true
      await Promise.all(all)
    },
  }
}
