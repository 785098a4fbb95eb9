import { readFileSync } from 'node:fs'
import type { DatabaseLogin, KafkaLogin } from '../src/domain/config.ts'

export type ServiceStream = KafkaLogin & {
  /** Topic this region's relay publishes its outbox to. */
  readonly outboxTopic: string
}

export type ServicePeer = {
  readonly region: string
  /** `http://127.0.0.1:PORT` of the peer's service; null: requests are never forwarded to it. */
  readonly url: string | null
  /** The peer's broker: this region's inbox reads the peer's outbox topic there. */
  readonly kafka: ServiceStream
}

/** The JSON file that `sandbox/service-process.ts FILE` reads. Passwords are references to environment variables, never values. */
export type ServiceConfig = {
  readonly region: string
  /** Loopback only; port 0 takes a free one, which the ready line names. */
  readonly http: { readonly port: number }
  readonly database: {
    /** Login of the write path (`app_writer`). */
    readonly writer: DatabaseLogin
    /** Login of the relay: SELECT on the outbox, UPDATE of its `published_at`. */
    readonly relay: DatabaseLogin
    /** Login of the inbox consumer: member of the boundary's apply role. */
    readonly inbox: DatabaseLogin
  }
  readonly kafka: ServiceStream & {
    /** Group of this region's inbox on the peers' brokers. */
    readonly inboxGroup: string
    /** Compacted topic with announcements of ownership on this region's own broker. */
    readonly ownershipTopic: string
  }
  readonly peers: readonly ServicePeer[]
}

/** What the process prints as its first line on stdout, once it serves. */
export type ServiceReady = { readonly ready: true; readonly region: string; readonly url: string; readonly pid: number }

export function readServiceConfig(path: string): ServiceConfig {
  return JSON.parse(readFileSync(path, 'utf8')) as ServiceConfig
}
