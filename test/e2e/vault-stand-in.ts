import { createServer } from 'node:http'

export type VaultStandIn = {
  readonly address: string
  /** Values it was given, in order. */
  readonly received: readonly string[]
  /** Answers every write with 403 from now on. */
  refuse(on: boolean): void
  stop(): Promise<void>
}

/** As much of Vault's key/value store as is asked for, and a place for HTTP fences: PUT closes, DELETE opens, GET tells. */
export async function startVaultStandIn(token: string, deliver: (secret: string) => void): Promise<VaultStandIn> {
  const received: string[] = []
  const standing = new Set<string>()
  let [version, refusing] = [0, false]
  let keys: Record<string, string> = {}
  const server = createServer((request, response) => {
    const answer = (status: number, body: unknown = {}) => response.writeHead(status).end(JSON.stringify(body))
    let text = ''
    request.on('data', (chunk: Buffer) => (text += chunk.toString('utf8')))
    request.on('end', () => {
      const path = request.url ?? ''
      if (path.startsWith('/fence/')) {
        if (request.headers['authorization'] !== token) return void answer(401)
        if (request.method === 'PUT') standing.add(path)
        if (request.method === 'DELETE') standing.delete(path)
        return void answer(request.method === 'GET' && !standing.has(path) ? 404 : 200)
      }
      if (request.headers['x-vault-token'] !== token || refusing) return void answer(403)
      if (request.method === 'GET') return void answer(version === 0 ? 404 : 200, { data: { data: keys, metadata: { version } } })
      keys = (JSON.parse(text) as { data: Record<string, string> }).data
      version += 1
      const value = keys['password'] ?? ''
      received.push(value)
      deliver(value)
      answer(200, { data: { version } })
    })
  })
  await new Promise<void>(resolve => server.listen(0, '127.0.0.1', resolve))
  const at = server.address()
  if (at === null || typeof at === 'string') throw new Error('the stand-in for Vault has no port')
  return {
    address: `http://127.0.0.1:${at.port}`,
    received,
    refuse: on => {
      refusing = on
    },
    stop: async () => {
      server.closeAllConnections()
      await new Promise<void>(resolve => server.close(() => resolve()))
    },
  }
}
