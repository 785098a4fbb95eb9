import { spawnSync } from 'node:child_process'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { createServer, type IncomingMessage } from 'node:http'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { expect, it, onTestFinished } from 'vitest'
import { packageFile } from '../../src/adapters/files/package-root.ts'
import { createHooks } from '../../src/adapters/hooks/command-hooks.ts'
import { createExecFence } from '../../src/adapters/hooks/exec-fence.ts'
import type { RegionConfig } from '../../src/domain/config.ts'
import { liftStanding } from '../rig/lift-standing.ts'
import { codedError } from '../unit/coded-error.ts'
import { CAUSE, createMemoryNotes } from '../unit/fence-sample.ts'

const found = spawnSync('kubectl', ['version', '--client'], { encoding: 'utf8' })
const reason = found.status === 0 ? null : 'needs kubectl'
const wanted = reason === null ? it : it.skip

const COLLECTION = '/apis/networking.k8s.io/v1/namespaces/shop/networkpolicies'

/** As much of an API server as kubectl needs for one kind of object; it keeps what it is told. */
async function startApiServer() {
  const kept = new Map<string, Record<string, unknown>>()
  const state = { kept, forbidden: false }
  const server = createServer((request, response) => {
    void (async () => {
      const { pathname } = new URL(request.url ?? '/', 'http://api')
      const body = await read(request)
      const send = (status: number, value: unknown) => {
        response.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(value))
      }
      const failure = (code: number, why: string) =>
        send(code, { kind: 'Status', apiVersion: 'v1', status: 'Failure', reason: why, code, message: why })
      if (pathname === '/api') return send(200, { kind: 'APIVersions', versions: ['v1'] })
      if (pathname === '/api/v1') return send(200, { kind: 'APIResourceList', groupVersion: 'v1', resources: [] })
      const groupVersion = { groupVersion: 'networking.k8s.io/v1', version: 'v1' }
      if (pathname === '/apis')
        return send(200, {
          kind: 'APIGroupList',
          groups: [{ name: 'networking.k8s.io', versions: [groupVersion], preferredVersion: groupVersion }],
        })
      if (pathname === '/apis/networking.k8s.io/v1')
        return send(200, {
          ...{ kind: 'APIResourceList', groupVersion: 'networking.k8s.io/v1' },
          resources: [
            {
              name: 'networkpolicies',
              singularName: 'networkpolicy',
              namespaced: true,
              kind: 'NetworkPolicy',
              verbs: ['get', 'create', 'patch', 'delete'],
            },
          ],
        })
      if (!pathname.startsWith(COLLECTION)) return failure(404, 'NotFound')
      if (state.forbidden) return failure(403, 'Forbidden')
      const name = pathname.slice(COLLECTION.length + 1)
      if (request.method === 'POST') {
        const made = JSON.parse(body) as { metadata: { name: string } }
        kept.set(made.metadata.name, made)
        return send(201, made)
      }
      const object = kept.get(name)
      if (object === undefined) return failure(404, 'NotFound')
      if (request.method === 'DELETE') kept.delete(name)
      return send(200, object)
    })()
  })
  await new Promise<void>(resolve => server.listen(0, '127.0.0.1', resolve))
  onTestFinished(() => {
    server.closeAllConnections()
    server.close()
  })
  return { state, url: `http://127.0.0.1:${(server.address() as AddressInfo).port}` }
}

async function read(request: IncomingMessage): Promise<string> {
  let text = ''
  for await (const chunk of request) text += String(chunk)
  return text
}

async function create() {
  const api = await startApiServer()
  const folder = mkdtempSync(join(tmpdir(), 'homeregion-kube-'))
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }))
  const config = join(folder, 'config')
  writeFileSync(
    config,
    JSON.stringify({
      ...{ apiVersion: 'v1', kind: 'Config', 'current-context': 'here' },
      clusters: [{ name: 'here', cluster: { server: api.url } }],
      users: [{ name: 'me', user: {} }],
      contexts: [{ name: 'here', context: { cluster: 'here', user: 'me' } }],
    }),
  )
  const command = (verb: string) => ['sh', packageFile('docs', 'fences', 'kubernetes-network-policy.sh'), verb, 'shop', 'app=writer']
  const fence = createExecFence(
    { name: 'region-a' } as RegionConfig,
    { kind: 'exec', name: 'policy', apply: command('apply'), verify: command('verify'), lift: command('lift'), timeoutMs: 30_000 },
    createHooks({ PATH: process.env['PATH'] ?? '', KUBECONFIG: config, HOME: folder }),
    createMemoryNotes(),
    () => Promise.resolve(),
    () => '2026-01-02T03:04:05.000Z',
  )
  return { ...api, fence }
}

wanted(`a network policy is made, seen and removed by the real kubectl${reason === null ? '' : ` (${reason})`}`, async () => {
  const { fence, state } = await create()
  expect((await fence.verify())[0]?.verdict).toBe('fail')
  await fence.apply(CAUSE)
  expect(state.kept.get('homeregion-fence')).toMatchObject({
    spec: { podSelector: { matchLabels: { app: 'writer' } }, policyTypes: ['Egress'], egress: [{ ports: [{ port: 53 }, { port: 53 }] }] },
  })
  expect((await fence.verify())[0]?.verdict).toBe('pass')
  // Repeated, and lifted twice.
  await fence.apply(CAUSE)
  await liftStanding(fence, CAUSE)
  expect(state.kept.size).toBe(0)
  await liftStanding(fence, CAUSE)
})

wanted('a policy that somebody opened is found open, and an API server that refuses is unknown', async () => {
  const { fence, state } = await create()
  await fence.apply(CAUSE)
  const spec = { policyTypes: ['Egress'], egress: [{ to: [{ ipBlock: { cidr: '0.0.0.0/0' } }] }] }
  state.kept.set('homeregion-fence', { ...state.kept.get('homeregion-fence'), spec })
  expect((await fence.verify())[0]?.verdict).toBe('fail')
  state.forbidden = true
  expect((await fence.verify())[0]?.verdict).toBe('unknown')
  expect((await codedError(() => liftStanding(fence, CAUSE))).code).toBe('fence-failed')
})
