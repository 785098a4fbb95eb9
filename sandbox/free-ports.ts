import { createServer } from 'node:net'

/**
 * Ports of 127.0.0.1 that were free a moment ago, all different. Somebody may still take one before it is used, so whoever
 * binds them tries again with others on a clash.
 */
export async function freePorts(count: number): Promise<readonly number[]> {
  const servers = Array.from({ length: count }, () => createServer())
  try {
    return await Promise.all(
      servers.map(
        server =>
          new Promise<number>((resolve, reject) => {
            server.once('error', reject)
            server.listen(0, '127.0.0.1', () => {
              const address = server.address()
              if (address === null || typeof address === 'string') reject(new Error('no port was given'))
              else resolve(address.port)
            })
          }),
      ),
    )
  } finally {
    await Promise.all(servers.map(server => new Promise(resolve => server.close(resolve))))
  }
}
