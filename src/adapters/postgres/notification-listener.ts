import { setTimeout as wait } from 'node:timers/promises'
import pg from 'pg'
import { clientOf, clientSettings, type ServicePoolOptions } from './service-pool.ts'

export interface NotificationListener {
  close(): Promise<void>
}

export type NotificationHandler = {
  notified(channel: string, payload: string): void
  /** After every (re)connection: notifications sent while nobody listened are gone. */
  listening(): void
}

const RECONNECT_MS = 250

/** LISTENs on `channels` over a session of its own, until it is closed. */
export function listenFor(
  options: Omit<ServicePoolOptions, 'size'>,
  channels: readonly string[],
  handler: NotificationHandler,
): NotificationListener {
  const closing = new AbortController()

  const runOnce = async (): Promise<void> => {
    const client = new (clientOf(options))(clientSettings(options))
    let stop: () => void = () => undefined
    const ended = new Promise<void>(resolve => {
      stop = resolve
    })
    client.on('error', stop)
    client.on('end', stop)
    closing.signal.addEventListener('abort', stop)
    client.on('notification', message => handler.notified(message.channel, message.payload ?? ''))
    try {
      await client.connect()
      for (const channel of channels) await client.query(`listen ${pg.escapeIdentifier(channel)}`)
      handler.listening()
      await ended
    } finally {
      closing.signal.removeEventListener('abort', stop)
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
