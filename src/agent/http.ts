import { createServer, type Server } from 'node:http'
import { HomeregionError } from '../domain/errors.ts'
import type { AgentHealth } from './agent.ts'
import type { Metrics } from './metrics.ts'

export interface AgentHttp {
  /** Where it really listens: of port 0, the one it got. */
  readonly address: string
  close(): Promise<void>
}

/** `/metrics` for Prometheus, `/healthz` for whoever restarts it: 503 while nobody is known to lead, or a lease is not renewed. */
export async function serveAgent(listen: string, metrics: Metrics, health: () => AgentHealth): Promise<AgentHttp> {
  const { host, port } = hostAndPort(listen)
  const server = createServer((request, response) => {
    request.resume()
    const path = (request.url ?? '').split('?')[0]
    const answer = (status: number, type: string, body: string) =>
      response.writeHead(status, { 'content-type': type, 'cache-control': 'no-store' }).end(request.method === 'HEAD' ? '' : body)
    if (request.method !== 'GET' && request.method !== 'HEAD') return void answer(405, 'text/plain', 'only GET\n')
    if (path === '/metrics') return void answer(200, 'text/plain; version=0.0.4; charset=utf-8', metrics.text())
    if (path !== '/healthz') return void answer(404, 'text/plain', '/metrics or /healthz\n')
    const now = health()
    answer(now.ok ? 200 : 503, 'application/json', `${JSON.stringify(now)}\n`)
  })
  server.requestTimeout = REQUEST_MS
  server.headersTimeout = REQUEST_MS
  server.maxConnections = MOST_CONNECTIONS
  await new Promise<void>((resolve, reject) => {
    server.once('error', error => reject(cannotListen(listen, error)))
    server.listen(port, host, resolve)
  })
  return { address: addressOf(server), close: async () => await closed(server) }
}

const REQUEST_MS = 5000
const MOST_CONNECTIONS = 50

function hostAndPort(listen: string): { host: string; port: number } {
  const [, v6, name, port] = /^(?:\[([0-9a-fA-F:]+)\]|([A-Za-z0-9._-]+)):(\d{1,5})$/.exec(listen) ?? []
  if (port === undefined || Number(port) > 65_535)
    throw new HomeregionError('usage', {
      fact: `${JSON.stringify(listen)} is no host:port to listen on`,
      state: 'The agent did not start.',
    })
  return { host: v6 ?? name ?? '', port: Number(port) }
}

function cannotListen(listen: string, cause: Error): HomeregionError {
  return new HomeregionError(
    'config-invalid',
    {
      fact: `cannot listen on ${listen}: ${cause.message}`,
      state: 'The agent did not start.',
      next: 'homeregion agent --listen 127.0.0.1:0',
    },
    { cause },
  )
}

function addressOf(server: Server): string {
  const at = server.address()
  if (at === null || typeof at === 'string') return String(at)
  return at.family === 'IPv6' ? `[${at.address}]:${at.port}` : `${at.address}:${at.port}`
}

async function closed(server: Server): Promise<void> {
  await new Promise<void>(resolve => {
    server.close(() => resolve())
    server.closeAllConnections()
  })
}
