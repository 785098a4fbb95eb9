import { Agent, request as httpRequest } from 'node:http'

export type WriteAnswer =
  | {
      readonly kind: 'acknowledged'
      readonly version: number
      readonly epoch: number
      /** Region that committed it, which is not the one asked when the request was forwarded or answered from a carried record. */
      readonly region: string
      readonly replayed: boolean
    }
  | {
      readonly kind: 'refused'
      readonly error: string
      readonly sqlstate: string | null
      readonly homeRegion: string | null
      readonly epoch: number | null
    }
  /** No answer, or an answer that tells nothing: it may have been committed. */
  | { readonly kind: 'unknown'; readonly why: string }

export type WriteOrder = {
  readonly tenant: string
  readonly accountId: string
  readonly idempotencyKey: string
  readonly epoch: number | null
  readonly address: string
}

export interface LoadClient {
  write(url: string, order: WriteOrder): Promise<WriteAnswer>
  close(): void
}

export function createLoadClient(timeoutMs: number): LoadClient {
  const agent = new Agent({ keepAlive: true, noDelay: true, maxSockets: 256 })
  return {
    write: async (url, order) =>
      await new Promise(resolve => {
        const text = JSON.stringify(order)
        const lost = (error: Error) => resolve({ kind: 'unknown', why: error.message })
        const headers = { 'content-type': 'application/json', 'content-length': Buffer.byteLength(text) }
        const sent = httpRequest(`${url}/write`, { method: 'POST', agent, timeout: timeoutMs, headers }, response => {
          const chunks: Buffer[] = []
          response.on('data', (chunk: Buffer) => chunks.push(chunk))
          response.on('error', lost)
          response.on('end', () => resolve(answerOf(response.statusCode ?? 0, Buffer.concat(chunks).toString('utf8'))))
        })
        sent.on('timeout', () => sent.destroy(new Error(`no answer within ${timeoutMs} ms`)))
        sent.on('error', lost)
        sent.end(text)
      }),
    close: () => agent.destroy(),
  }
}

function answerOf(status: number, text: string): WriteAnswer {
  let body: Record<string, unknown>
  try {
    body = JSON.parse(text) as Record<string, unknown>
  } catch {
    return { kind: 'unknown', why: `status ${status} without JSON` }
  }
  const { version, epoch, region, replayed, error, sqlstate, homeRegion } = body
  if (status === 200 && typeof version === 'number' && typeof epoch === 'number' && typeof region === 'string')
    return { kind: 'acknowledged', version, epoch, region, replayed: replayed === true }
  if (status === 409)
    return {
      kind: 'refused',
      error: typeof error === 'string' ? error : 'refused',
      sqlstate: typeof sqlstate === 'string' ? sqlstate : null,
      homeRegion: typeof homeRegion === 'string' ? homeRegion : null,
      epoch: typeof epoch === 'number' ? epoch : null,
    }
  return { kind: 'unknown', why: `status ${status}: ${typeof error === 'string' ? error : text.slice(0, 100)}` }
}
