import { Agent, request as httpRequest, type IncomingMessage, type ServerResponse } from 'node:http'
import { isHomeregionError } from '../src/domain/errors.ts'
import type { Json } from '../src/domain/evidence.ts'
import { route } from '../src/service/gateway.ts'
import type { GuardedWriter, WriteResult } from '../src/service/guarded-write.ts'
import type { OwnershipCache } from '../src/service/ownership-cache.ts'
import type { Refusal } from '../src/service/refusal.ts'
import { changeAddress } from './service-account.ts'
import { BadRequest, readWriteBody, type WriteBody } from './service-requests.ts'

export type ServiceApi = {
  readonly region: string
  readonly writer: GuardedWriter
  readonly cache: OwnershipCache
  /** URL of each region that requests may be forwarded to. */
  readonly peers: ReadonlyMap<string, string>
  readonly read: (tenant: string) => Promise<Json>
  readonly stats: () => Json
}

type Answer = { readonly status: number; readonly body: Json }

const HOPS = 'x-homeregion-hops'
const FORWARD_TIMEOUT_MS = 5000
const agent = new Agent({ keepAlive: true, noDelay: true })

/** POST /write, GET /read?tenant=…, GET /healthz, GET /stats. Refusals are 409 with the home as the boundary names it. */
export function handler(api: ServiceApi): (request: IncomingMessage, response: ServerResponse) => void {
  return (request, response) => {
    answer(api, request)
      .catch(failure)
      .then(({ status, body }) => {
        const text = JSON.stringify(body)
        response.writeHead(status, { 'content-type': 'application/json', 'content-length': Buffer.byteLength(text) })
        response.end(text)
      })
      // The caller went away before the answer; it will ask again with the same idempotency key.
      .catch(() => response.destroy())
  }
}

async function answer(api: ServiceApi, request: IncomingMessage): Promise<Answer> {
  const url = new URL(request.url ?? '/', 'http://localhost')
  switch (`${request.method} ${url.pathname}`) {
    case 'POST /write':
      return await write(api, request)
    case 'GET /read':
      return { status: 200, body: await api.read(url.searchParams.get('tenant') ?? '') }
    case 'GET /healthz':
      return { status: 200, body: { ok: true, region: api.region } }
    case 'GET /stats':
      return { status: 200, body: api.stats() }
    default:
      return { status: 404, body: { error: 'not-found' } }
  }
}

async function write(api: ServiceApi, request: IncomingMessage): Promise<Answer> {
  const hops = Number(request.headers[HOPS] ?? 0)
  const { body, text } = await readWriteBody(request)
  const way = route(api.region, api.cache.hint(body.tenant), hops, new Set(api.peers.keys()))
  const peer = way.kind === 'forward' ? api.peers.get(way.region) : undefined
  if (peer !== undefined) return await forward(peer, text, hops + 1)
  if (way.kind === 'reject') return { status: 409, body: { error: 'notHome', homeRegion: way.homeRegion, region: api.region } }
  const result = await api.writer.write(request_(body))
  return written(api.region, result)
}

function request_(body: WriteBody): Parameters<GuardedWriter['write']>[0] {
  return {
    key: body.tenant,
    epoch: body.epoch,
    idempotencyKey: body.idempotencyKey,
    change: async (tx, under) => await changeAddress(tx, under, body),
  }
}

function written(region: string, result: WriteResult): Answer {
  switch (result.kind) {
    case 'committed':
      return { status: 200, body: { ...(result.response as Record<string, Json>), replayed: false } }
    case 'replayed':
      return { status: 200, body: { ...(result.response as Record<string, Json>), replayed: true } }
    case 'refused':
      return { status: 409, body: refused(region, result.refusal) }
  }
}

function refused(region: string, refusal: Refusal): Json {
  const { kind, sqlstate, homeRegion, epoch, state } = refusal
  return { error: kind, sqlstate, homeRegion, epoch, state, region }
}

function failure(error: unknown): Answer {
  if (error instanceof BadRequest) return { status: 400, body: { error: 'bad-request', message: error.message } }
  if (isHomeregionError(error, 'outcome-unknown')) return { status: 504, body: { error: 'outcome-unknown', message: error.message } }
  return { status: 503, body: { error: 'unavailable', message: error instanceof Error ? error.message : String(error) } }
}

async function forward(peer: string, text: string, hops: number): Promise<Answer> {
  return await new Promise((resolve, reject) => {
    const sent = httpRequest(
      `${peer}/write`,
      {
        method: 'POST',
        agent,
        timeout: FORWARD_TIMEOUT_MS,
        headers: { 'content-type': 'application/json', 'content-length': Buffer.byteLength(text), [HOPS]: String(hops) },
      },
      response => {
        const chunks: Buffer[] = []
        response.on('data', (chunk: Buffer) => chunks.push(chunk))
        response.on('error', reject)
        response.on('end', () => {
          resolve({ status: response.statusCode ?? 502, body: JSON.parse(Buffer.concat(chunks).toString('utf8')) as Json })
        })
      },
    )
    sent.on('timeout', () => sent.destroy(new Error('the home region did not answer')))
    sent.on('error', reject)
    sent.end(text)
  })
}
