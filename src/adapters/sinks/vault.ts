import type { SecretSink } from '../../domain/config.ts'
import type { Json } from '../../domain/evidence.ts'
import type { Sink } from '../../domain/sink.ts'
import type { SinkContext } from './sink-context.ts'
import { sinkError } from './sink-error.ts'

type Vault = Extract<SecretSink, { vault: unknown }>['vault']

/** Others may write other keys of the same secret between our read and our write; then it is read again. */
const TRIES = 5
const ANSWER_BYTES = 1024 * 1024

type Answer = { readonly status: number; readonly body: { readonly [name: string]: unknown } }
type Version = { readonly version: number; readonly keys: { readonly [name: string]: unknown } }

/** A key of a secret of the key/value store, version 2. The other keys stay: it is read, changed, and written if nobody wrote meanwhile. */
export function createVaultSink(sink: Vault, context: SinkContext): Sink {
  const place = `Vault ${sink.mount}/${sink.path} (${sink.key})`
  const url = `${sink.address.replace(/\/+$/, '')}/v1/${segments(sink.mount)}/data/${segments(sink.path)}`
  const call = async (method: 'GET' | 'POST', body: Json, signal: AbortSignal): Promise<Answer> => {
    const token = await context.secrets.read(sink.token)
    // The library's own message for it would quote the token.
    if (!/^[\x21-\x7e]+$/.test(token)) throw sinkError(place, 'its token has characters that no token has')
    try {
      const response = await fetch(url, {
        method,
        signal,
        // A redirect would carry the token to whoever it names.
        redirect: 'error',
        headers: { 'x-vault-token': token, 'x-vault-request': 'true', 'content-type': 'application/json' },
        ...(method === 'POST' ? { body: JSON.stringify(body) } : {}),
      })
      return { status: response.status, body: await boundedJson(response) }
    } catch (error) {
      throw sinkError(place, signal.aborted ? `no answer within ${context.timeoutMs} ms` : `no answer (${causeOf(error)})`)
    }
  }
  const current = async (signal: AbortSignal): Promise<Version> => {
    const { status, body } = await call('GET', null, signal)
    if (status !== 200 && status !== 404) throw refused(place, 'read', status)
    const answer = object(body['data'])
    const version = object(answer['metadata'])['version']
    if (status === 200 && typeof version === 'number' && isObject(answer['data'])) return { version, keys: answer['data'] }
    // 404 with a version: its newest version was deleted, and a write has to name it all the same.
    if (status === 404 && typeof version === 'number') return { version, keys: {} }
    if (status === 404 && Array.isArray(body['errors'])) return { version: 0, keys: {} }
    throw stranger(place, 'read', status)
  }
  return {
    place,
    deliver: async secret => {
      const signal = AbortSignal.timeout(context.timeoutMs)
      for (let left = TRIES; left > 0; left -= 1) {
        const { version, keys } = await current(signal)
        const change = { options: { cas: version }, data: { ...keys, [sink.key]: secret } } as Json
        const { status, body } = await call('POST', change, signal)
        if (status === 200 && typeof object(body['data'])['version'] === 'number') return
        if (status >= 200 && status < 300) throw stranger(place, 'write', status)
        if (status !== 400 || !isOutpaced(body)) throw refused(place, 'write', status)
      }
      throw sinkError(place, `somebody else wrote the same secret ${TRIES} times in between`)
    },
    readsBack: true,
    read: async () => {
      const value = (await current(AbortSignal.timeout(context.timeoutMs))).keys[sink.key]
      return typeof value === 'string' ? value : null
    },
  }
}

function segments(path: string): string {
  return path
    .split('/')
    .filter(part => part !== '')
    .map(encodeURIComponent)
    .join('/')
}

async function boundedJson(response: Response): Promise<Answer['body']> {
  const chunks: Uint8Array[] = []
  let size = 0
  for await (const chunk of response.body ?? []) {
    const bytes = chunk as Uint8Array
    size += bytes.length
    if (size > ANSWER_BYTES) throw new Error('too large')
    chunks.push(bytes)
  }
  try {
    return object(JSON.parse(Buffer.concat(chunks).toString('utf8')))
  } catch {
    return {}
  }
}

function isOutpaced(body: Answer['body']): boolean {
  return Array.isArray(body['errors']) && body['errors'].some(e => typeof e === 'string' && e.includes('check-and-set'))
}

function refused(place: string, what: string, status: number): Error {
  const why = status === 403 ? ': its token may not' : status === 503 ? ': it is sealed or on standby' : ''
  return sinkError(place, `the ${what} was answered with ${status}${why}`)
}

/** A proxy's page of greeting, another program on its port, or a store of version 1 answer with 200 as well. */
function stranger(place: string, what: string, status: number): Error {
  return sinkError(
    place,
    `the ${what} was answered with ${status}, but not as Vault's key/value store of version 2 answers: nothing proves that it is one`,
  )
}

type Keys = { readonly [name: string]: unknown }

function isObject(value: unknown): value is Keys {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

function object(value: unknown): Keys {
  return isObject(value) ? value : {}
}

/** Codes and names only: a message could quote what was sent. */
function causeOf(error: unknown): string {
  const cause = error instanceof Error ? error.cause : undefined
  const code = cause instanceof Error ? (cause as NodeJS.ErrnoException).code : undefined
  return code ?? (error instanceof Error ? error.name : 'unknown reason')
}
