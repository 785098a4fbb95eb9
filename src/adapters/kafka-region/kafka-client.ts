import net from 'node:net'
import tls from 'node:tls'
import type { ISocketFactory, Kafka, logCreator, SASLOptions } from 'kafkajs'
import type { KafkaLogin, SecretReference } from '../../domain/config.ts'
import { HomeregionError } from '../../domain/errors.ts'

export type SecretReader = { read(reference: SecretReference): Promise<string> }

export type KafkaConnection = {
  readonly login: KafkaLogin
  readonly secrets: SecretReader
  /** Whose Kafka this is, for messages: `region-a Kafka`. */
  readonly name: string
  readonly clientId: string
  /** Our own deadline around each call; kafkajs alone takes 9 to 30 s to notice a dead broker. */
  readonly callTimeoutMs: number
}

// How long a connection may outlive the work that needed it. kafkajs waits for its requests in flight, which took 30 s on a silent port.
const DISCONNECT_MS = 500

export async function openKafka(connection: KafkaConnection): Promise<Kafka> {
  const { login } = connection
  const sasl = await saslOptions(connection)
  const sockets = trackSockets()
  const library = await import('./kafka-library.ts')
  const kafka = new library.Kafka({
    clientId: connection.clientId,
    brokers: [...login.brokers],
    ssl: login.ssl,
    ...(sasl === null ? {} : { sasl }),
    connectionTimeout: connection.callTimeoutMs,
    authenticationTimeout: connection.callTimeoutMs,
    reauthenticationThreshold: REAUTHENTICATE_MS,
    requestTimeout: connection.callTimeoutMs,
    enforceRequestTimeout: true,
    retry: { retries: 1, initialRetryTime: 50, maxRetryTime: 200 },
    socketFactory: sockets.factory,
    logCreator: quietLog,
  })
  opened.set(kafka, sockets)
  return kafka
}

/** Sessions are renewed this long before the broker would end them. */
export const REAUTHENTICATE_MS = 5000

export async function saslOptions({ login, secrets }: KafkaConnection): Promise<SASLOptions | null> {
  if (login.sasl === null) return null
  return { mechanism: login.sasl.mechanism, username: login.sasl.username, password: await secrets.read(login.sasl.password) }
}

const opened = new WeakMap<Kafka, TrackedSockets>()

/** Cuts every connection that clients of this Kafka have, and those they try to open afterwards. */
export function cutConnections(kafka: Kafka): void {
  opened.get(kafka)?.cut()
}

/** @throws HomeregionError `kafka-unreachable` when `work` fails or takes longer than the call timeout */
export async function withinDeadline<T>(connection: KafkaConnection, what: string, work: Promise<T>): Promise<T> {
  let timer: NodeJS.Timeout | undefined
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(new Error(`no answer within ${connection.callTimeoutMs} ms`)), connection.callTimeoutMs)
  })
  try {
    return await Promise.race([work, late])
  } catch (error) {
    throw kafkaFailure(connection, what, error)
  } finally {
    clearTimeout(timer)
  }
}

export function kafkaFailure(connection: KafkaConnection, what: string, error: unknown): HomeregionError {
  if (error instanceof HomeregionError) return error
  return new HomeregionError(
    'kafka-unreachable',
    { fact: `${connection.name} did not answer (${what}): ${reason(error)}`, next: 'homeregion doctor' },
    { cause: error, retriable: true, fields: { name: connection.name, brokers: connection.login.brokers } },
  )
}

/** Ends a client without waiting longer than `DISCONNECT_MS`; what it leaves behind dies with its sockets. */
export async function disconnect(client: { disconnect(): Promise<void> }): Promise<void> {
  const ended = client.disconnect().catch(() => undefined)
  await Promise.race([ended, new Promise(resolve => setTimeout(resolve, DISCONNECT_MS))])
}

/** The protocol's name of an error (`TOPIC_AUTHORIZATION_FAILED`), or null. kafkajs wraps it several times. */
export function protocolError(error: unknown): string | null {
  for (let e = error, depth = 0; e instanceof Error && depth < 6; depth += 1) {
    if ('type' in e && typeof e.type === 'string') return e.type
    const [inner] = 'errors' in e && Array.isArray(e.errors) ? (e.errors as unknown[]) : []
    e = inner ?? e.cause
  }
  return null
}

function reason(error: unknown): string {
  const type = protocolError(error)
  const message = error instanceof Error ? error.message : String(error)
  return type === null ? message : `${type}: ${message}`
}

export type TrackedSockets = { readonly factory: ISocketFactory; cut(): void }

/**
 * Sockets that can be cut, the open ones and those still to come. A client that was given up on would wait for a silent broker, and keep
 * the process from ending. With an error, because kafkajs lets go of its timers at no other event.
 */
export function trackSockets(): TrackedSockets {
  const open = new Set<net.Socket>()
  let cut = false
  return {
    factory: ({ host, port, ssl, onConnect }) => {
      const servername = net.isIP(host) === 0 ? { servername: host } : {}
      const socket = ssl ? tls.connect({ host, port, ...servername, ...ssl }, onConnect) : net.connect({ host, port }, onConnect)
      socket.setKeepAlive(true, 60_000)
      // Nagle's algorithm would hold a small request back until the broker acknowledged the one before it.
      socket.setNoDelay(true)
      open.add(socket)
      socket.once('close', () => open.delete(socket))
      // Not before the client listens for it.
      if (cut) process.nextTick(() => socket.destroy(new Error('given up')))
      return socket
    },
    cut: () => {
      cut = true
      for (const socket of open) socket.destroy(new Error('given up'))
    },
  }
}

// kafkajs logs to stdout by default, which would break every command that prints JSON.
export const quietLog: logCreator = () => entry => {
  if (process.env['HOMEREGION_DEBUG']?.split(',').includes('kafka') !== true) return
  process.stderr.write(`${JSON.stringify({ kafka: entry.label, namespace: entry.namespace, message: entry.log.message })}\n`)
}
