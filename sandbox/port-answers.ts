import { connect } from 'node:net'

/** True when something accepts connections there. A process that was just killed still has a pid for a moment, but no port. */
export async function portAnswers(address: string, timeoutMs: number): Promise<boolean> {
  const colon = address.lastIndexOf(':')
  const socket = connect({ host: address.slice(0, colon), port: Number(address.slice(colon + 1)) })
  try {
    return await new Promise(resolve => {
      socket.setTimeout(timeoutMs, () => resolve(false))
      socket.once('connect', () => resolve(true))
      socket.once('error', () => resolve(false))
    })
  } finally {
    socket.destroy()
  }
}
