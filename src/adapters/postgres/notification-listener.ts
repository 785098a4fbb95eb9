import { setTimeout as wait } from 'node:timers/promises'
import pg from 'pg'
import { clientSettings, type ServicePoolOptions } from './service-pool.ts'

export interface NotificationListener {
  close(): Promise<void>
}

const RECONNECT_MS = 250

/**
 * LISTENs on `channel` over a session of its own, for ever. `woken` is also called after every (re)connection, because
 * notifications sent while nobody listened are gone.
 */
export function listenFor(options: Omit<ServicePoolOptions, 'size'>, channel: string, woken: () => void): NotificationListener {
  const closing = new AbortController()

  const runOnce = async (): Promise<void> => {
    const client = new pg.Client(clientSettings(options))
    const ended = new Promise<void>(resolve => {
      client.on('error', () => resolve())
      client.on('end', () => resolve())
      closing.signal.addEventListener('abort', () => resolve())
    })
    client.on('notification', woken)
    try {
      await client.connect()
      await client.query(`listen ${pg.escapeIdentifier(channel)}`)
      woken()
      await ended
    } finally {
      await Promise.race([client.end().catch(() => undefined), wait(500)])
    }
  }

  const loop = async (): Promise<void> => {
    while (!closing.signal.aborted) {
      await runOnce().catch(() => undefined)
      await wait(RECONNECT_MS, undefined, { signal: closing.signal }).catch(() => undefined)
    }
  }

  const running = loop()
  return {
    close: async () => {
      closing.abort()
      await running
    },
  }
}
