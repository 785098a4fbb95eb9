import { connect, createServer, type Socket } from 'node:net'

export interface TcpLink {
  readonly port: number
  /** `broken`: connections break, new ones too. `silent`: everything stays open and nothing passes any more. */
  cut(how: 'broken' | 'silent'): void
  /** New connections pass again. */
  restore(): void
  stop(): Promise<void>
}

/** The way to a server on this machine, which a test can cut. */
export async function startTcpLink(targetPort: number): Promise<TcpLink> {
  let state: 'whole' | 'broken' | 'silent' = 'whole'
  const open = new Set<Socket>()
  const keep = (socket: Socket) => {
    open.add(socket)
    socket.on('error', () => undefined)
    socket.on('close', () => open.delete(socket))
  }
  const server = createServer(client => {
    keep(client)
    if (state === 'broken') return void client.destroy()
    if (state === 'silent') return void client.pause()
    const upstream = connect(targetPort, '127.0.0.1')
    keep(upstream)
    client.pipe(upstream)
    upstream.pipe(client)
    client.on('close', () => upstream.destroy())
    upstream.on('close', () => client.destroy())
  })
  await new Promise<void>(resolve => server.listen(0, '127.0.0.1', resolve))
  const address = server.address()
  if (address === null || typeof address === 'string') throw new Error('the link has no port')
  return {
    port: address.port,
    cut: how => {
      state = how
      for (const socket of open) {
        if (how === 'broken') socket.destroy()
        else {
          socket.unpipe()
          socket.pause()
        }
      }
    },
    restore: () => {
      state = 'whole'
      for (const socket of open) socket.destroy()
    },
    stop: async () => {
      for (const socket of open) socket.destroy()
      await new Promise<void>(resolve => server.close(() => resolve()))
    },
  }
}
