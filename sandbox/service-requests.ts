import type { IncomingMessage } from 'node:http'

export type WriteBody = {
  readonly tenant: string
  readonly accountId: string
  readonly idempotencyKey: string
  readonly epoch: number | null
  readonly address: string
}

const BODY_MAX_BYTES = 64 * 1024

export class BadRequest extends Error {}

/** @throws BadRequest with what is wrong */
export async function readWriteBody(request: IncomingMessage): Promise<{ readonly body: WriteBody; readonly text: string }> {
  const chunks: Buffer[] = []
  let bytes = 0
  for await (const chunk of request as AsyncIterable<Buffer>) {
    bytes += chunk.length
    if (bytes > BODY_MAX_BYTES) throw new BadRequest(`a body has at most ${BODY_MAX_BYTES} bytes`)
    chunks.push(chunk)
  }
  const text = Buffer.concat(chunks).toString('utf8')
  return { body: parsed(text), text }
}

function parsed(text: string): WriteBody {
  let json: unknown
  try {
    json = JSON.parse(text)
  } catch {
    throw new BadRequest('the body is not JSON')
  }
  if (typeof json !== 'object' || json === null) throw new BadRequest('the body is not an object')
  const fields = json as Record<string, unknown>
  const text1 = (name: string): string => {
    const value = fields[name]
    if (typeof value !== 'string' || value === '' || value.length > 500)
      throw new BadRequest(`${name} must be a string of 1 to 500 characters`)
    return value
  }
  const epoch = fields['epoch'] ?? null
  if (epoch !== null && !Number.isSafeInteger(epoch)) throw new BadRequest('epoch must be an integer')
  return {
    tenant: text1('tenant'),
    accountId: text1('accountId'),
    idempotencyKey: text1('idempotencyKey'),
    address: text1('address'),
    epoch: epoch as number | null,
  }
}
