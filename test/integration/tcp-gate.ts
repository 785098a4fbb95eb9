import { connect, createServer, type Socket } from 'node:net'

export type TcpGate = {
  readonly port: number
  /** How often the client spoke again after it had been answered: the round trips it needed. */
  turns(): number
  reset(): void
  /** From now on the server gets everything, and the client's connection breaks at the first answer. */
  loseAnswers(): void
  /** Passes everything on again. */
  restore(): void
  stop(): Promise<void>
}

/** A relay in front of a server that counts turns and can lose answers. */
export async function startTcpGate(target: { port: number }): Promise<TcpGate> {
  let turns = 0
  let answered = true
  let losing = false
  const open = new Set<Socket>()
  const server = createServer(client => {
    const upstream = connect(target.port, '127.0.0.1')
    for (const socket of [client, upstream]) {
      open.add(socket)
      socket.on('error', () => undefined)
      socket.on('close', () => open.delete(socket))
    }
    client.on('data', data => {
      if (answered) turns += 1
      answered = false
      upstream.write(data)
    })
    upstream.on('data', data => {
      answered = true
      if (losing) client.destroy()
      else client.write(data)
    })
    client.on('end', () => upstream.end())
    upstream.on('end', () => client.end())
  })
  await new Promise<void>(resolve => server.listen(0, '127.0.0.1', resolve))
  const address = server.address()
  if (address === null || typeof address === 'string') throw new Error('the gate has no port')
  return {
    port: address.port,
    turns: () => turns,
    reset: () => {
      turns = 0
      answered = true
    },
    loseAnswers: () => {
      losing = true
    },
    restore: () => {
      losing = false
    },
    stop: async () => {
      for (const socket of open) socket.destroy()
      await new Promise<void>(resolve => server.close(() => resolve()))
    },
  }
}
