import { connect, createServer, type Server, type Socket } from 'node:net'

/** One burst of bytes from the client: what it asked for, as far as PostgreSQL's protocol shows it. */
export type Burst = { readonly server: string; readonly session: number; readonly atMs: number; readonly asked: readonly string[] }

export type DelayingProxy = { readonly port: number; close(): Promise<void> }

export type ProxyOptions = {
  readonly name: string
  readonly target: { readonly host: string; readonly port: number }
  /** Latency added in each direction, to the handshake of a connection as well. Bandwidth is not limited. */
  readonly delayMs: number
  readonly onBurst?: (burst: Burst) => void
}

let sessions = 0

/** A TCP proxy that is far away: each byte arrives `delayMs` later, in order. */
export async function startDelayingProxy(options: ProxyOptions): Promise<DelayingProxy> {
  const open = new Set<Socket>()
  const server: Server = createServer(client => {
    sessions += 1
    const session = sessions
    const upstream = connect(options.target)
    // A handshake costs a round trip before the first byte may leave.
    const readyAt = performance.now() + 2 * options.delayMs
    for (const socket of [client, upstream]) {
      open.add(socket)
      socket.setNoDelay(true)
      socket.on('error', () => undefined)
      socket.on('close', () => {
        open.delete(socket)
        client.destroy()
        upstream.destroy()
      })
    }
    client.on('data', (chunk: Buffer) =>
      options.onBurst?.({ server: options.name, session, atMs: performance.now(), asked: askedFor(chunk) }),
    )
    delayed(client, upstream, options.delayMs, readyAt)
    delayed(upstream, client, options.delayMs, readyAt)
  })
  await new Promise<void>(resolve => server.listen(0, '127.0.0.1', resolve))
  const address = server.address()
  if (address === null || typeof address === 'string') throw new Error('the proxy has no port')
  return {
    port: address.port,
    close: async () => {
      for (const socket of open) socket.destroy()
      await new Promise<void>(resolve => server.close(() => resolve()))
    },
  }
}

function delayed(from: Socket, to: Socket, delayMs: number, readyAt: number): void {
  // Timers set for different lengths may fire out of order: each takes what is first in the queue, whoever set it.
  const queue: (() => void)[] = []
  const pass = (work: () => void) => {
    if (delayMs === 0) return work()
    queue.push(work)
    setTimeout(() => queue.shift()?.(), Math.max(0, readyAt - performance.now()) + delayMs)
  }
  from.on('data', (chunk: Buffer) => pass(() => void (to.writable && to.write(chunk))))
  from.on('end', () => pass(() => to.end()))
}

const WORDS = /homeregion(?:_control)?\.(\w+)|\b(commit|rollback|begin|pg_current_wal_flush_lsn)\b|from "?public"?\."?(\w+)/gi
const BORING = new Set(['begin', 'require', 'commit', 'rollback', 'epoch', 'probe', 'run_token'])

/** Names of our functions and tables in the statements of a burst, each once. */
function askedFor(chunk: Buffer): readonly string[] {
  const text = chunk.toString('latin1')
  const names = [...text.matchAll(WORDS)].map(m => (m[1] ?? m[2] ?? m[3] ?? '').toLowerCase())
  return [...new Set(names)].filter(name => !BORING.has(name))
}
