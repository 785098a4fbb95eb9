import { createServer, type IncomingMessage } from 'node:http'
import type { AddressInfo } from 'node:net'
import { expect, onTestFinished, test } from 'vitest'
import { createHttpFence } from '../../src/adapters/hooks/http-fence.ts'
import { createSecrets } from '../../src/adapters/system/secrets.ts'
import type { RegionConfig } from '../../src/domain/config.ts'
import { liftStanding } from '../rig/lift-standing.ts'
import { codedError } from './coded-error.ts'
import { CAUSE, createMemoryNotes } from './fence-sample.ts'

type Seen = { readonly method: string; readonly url: string; readonly authorization: string | undefined; readonly body: string }

/** A firewall with an API. `status` overrides what a path answers; -1 never answers. */
async function startApi(status: Record<string, number> = {}) {
  const seen: Seen[] = []
  let standing = false
  const server = createServer((request, response) => {
    void read(request).then(body => {
      const { method = '', url = '' } = request
      seen.push({ method, url, authorization: request.headers.authorization, body })
      if (status[method] === -1) return
      if (method === 'PUT') standing = true
      if (method === 'DELETE') standing = false
      response.statusCode = status[method] ?? (method === 'GET' ? (standing ? 200 : 404) : 204)
      if (response.statusCode === 302) response.setHeader('location', 'http://127.0.0.1:1/')
      response.end('x'.repeat(100_000))
    })
  })
  await new Promise<void>(resolve => server.listen(0, '127.0.0.1', resolve))
  onTestFinished(() => {
    server.closeAllConnections()
    server.close()
  })
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/fence?token=in-the-query`
  const notes = createMemoryNotes()
  const fence = createHttpFence(
    { name: 'region-a' } as RegionConfig,
    {
      ...{ kind: 'http', name: 'cloud', timeoutMs: 1_000, headers: { Authorization: { env: 'CLOUD_TOKEN' } } },
      apply: { method: 'PUT', url, expectStatus: 204 },
      verify: { method: 'GET', url, expectStatus: 200 },
      lift: { method: 'DELETE', url, expectStatus: 204 },
    },
    createSecrets({ CLOUD_TOKEN: 'Bearer canary-4711' }),
    notes,
    () => Promise.resolve(),
    () => '2026-01-02T03:04:05.000Z',
  )
  return { fence, notes, seen }
}

async function read(request: IncomingMessage): Promise<string> {
  let text = ''
  for await (const chunk of request) text += String(chunk)
  return text
}

test('applies, proves and lifts by calls whose secret stands in a header and in nothing that is shown', async () => {
  const { fence, seen, notes } = await startApi()
  const lines = await fence.apply(CAUSE)
  expect((await fence.verify())[0]?.verdict).toBe('pass')
  const status = await fence.status()
  await liftStanding(fence, CAUSE)
  expect((await fence.verify())[0]?.verdict).toBe('fail')
  expect(seen[0]).toMatchObject({ method: 'PUT', authorization: 'Bearer canary-4711' })
  expect(JSON.parse(seen[0]?.body ?? '')).toMatchObject({ region: 'region-a', fence: 'cloud', reason: CAUSE.reason, by: CAUSE.by })
  const shown = JSON.stringify([lines, status, notes.written, await fence.plan('apply'), await fence.plan('lift')])
  expect(shown).not.toContain('canary-4711')
  expect(shown).not.toContain('in-the-query')
})

test.each([301, 302, 304, 307, 400, 401, 403, 405, 429, 500, 503])(
  'an answer of %i says nothing of the fence: unknown, and never lifted',
  async code => {
    const { fence, notes } = await startApi({ GET: code })
    expect((await fence.verify())[0]?.verdict).toBe('unknown')
    expect((await codedError(() => liftStanding(fence, CAUSE))).code).toBe('fence-failed')
    expect(notes.written.at(-1)?.state).toBe('lifting')
  },
)

test('a service that does not answer is unknown, within the time-out', async () => {
  const { fence } = await startApi({ GET: -1, PUT: -1 })
  const began = performance.now()
  const error = await codedError(() => fence.apply(CAUSE))
  expect(performance.now() - began).toBeLessThan(6_000)
  expect(error.text.fact).toContain('nothing within 1000 ms')
  expect(error.text.state).toContain('not known')
})

test('is not led elsewhere by a redirect', async () => {
  const { fence } = await startApi({ PUT: 302 })
  expect((await codedError(() => fence.apply(CAUSE))).text.fact).toContain('answered 302, expected 204')
})
