import { connect, createServer, type Socket } from 'node:net'

/** `there`: from the client to the server. `back`: what the server sends. */
export type Direction = 'there' | 'back'

export interface CuttingProxy {
  readonly port: number
  /** From now on nothing passes in that direction; nobody is told. A connection needs both directions to be opened. */
  cut(direction: Direction): void
  /** What was held passes after all, as it does on a network that was gone for a while: late bytes are the point. */
  heal(): void
  stop(): Promise<void>
}

/**
 * A way to a server on this machine that can be cut in each direction alone. Not a connection breaks: each end learns of the cut by waiting. What
 * an end closes meanwhile is closed at the other when the way is whole again.
 */
export async function startCuttingProxy(target: () => number): Promise<CuttingProxy> {
  const cuts = new Set<Direction>()
  const waiting = new Set<() => void>()
  const sockets = new Set<Socket>()

  const keep = (socket: Socket) => {
    sockets.add(socket)
    socket.on('error', () => undefined)
    socket.on('close', () => sockets.delete(socket))
  }
  /** At once while the direction passes, else when it passes again. */
  const when = (passes: () => boolean, act: () => void) => {
    if (passes()) return act()
    const again = () => {
      if (!passes()) return
      waiting.delete(again)
      act()
    }
    waiting.add(again)
  }
  const pass = (direction: Direction, from: Socket, to: Socket) => {
    const whole = () => !cuts.has(direction)
    from.on('data', data => {
      // What was on its way when the cut came is held as well.
      from.pause()
      when(whole, () => {
        if (to.destroyed) return
        if (to.write(data)) from.resume()
        else to.once('drain', () => from.resume())
      })
    })
    from.on('end', () => when(whole, () => void to.end()))
    from.on('close', () => when(whole, () => void to.destroySoon()))
  }

  const server = createServer({ allowHalfOpen: true }, client => {
    keep(client)
    client.setNoDelay(true)
    client.pause()
    when(
      () => cuts.size === 0,
      () => {
        if (client.destroyed) return
        const upstream = connect({ port: target(), host: '127.0.0.1', allowHalfOpen: true, noDelay: true })
        keep(upstream)
        pass('there', client, upstream)
        pass('back', upstream, client)
        client.resume()
      },
    )
  })
  await new Promise<void>(resolve => server.listen(0, '127.0.0.1', resolve))
  const address = server.address()
  if (address === null || typeof address === 'string') throw new Error('the proxy has no port')
  return {
    port: address.port,
    cut: direction => void cuts.add(direction),
    heal: () => {
      cuts.clear()
      for (const again of [...waiting]) again()
    },
    stop: async () => {
      for (const socket of sockets) socket.destroy()
      await new Promise<void>(resolve => server.close(() => resolve()))
    },
  }
}
