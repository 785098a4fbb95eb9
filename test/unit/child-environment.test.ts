import { expect, test } from 'vitest'
import { childEnvironments } from '../../src/adapters/system/child-environment.ts'
import type { FenceConfig } from '../../src/domain/config.ts'
import { fixtureConfig } from '../integration/boundary-fixture.ts'

const ENV = { PATH: '/bin', PASSWORD: 'p', ADMIN: 'a', HEADER: 'h', TOKEN: 't', HOMEREGION_CONFIG: 'c', UNNAMED: 'u' }
const FENCES: readonly FenceConfig[] = [
  {
    name: 'credentials',
    kind: 'credentials',
    roles: [{ role: 'app', sink: { vault: { address: 'http://v', mount: 'secret', path: 'a', key: 'k', token: { env: 'TOKEN' } } } }],
  },
  {
    name: 'cloud',
    kind: 'http',
    apply: { method: 'PUT', url: 'http://c', expectStatus: 200 },
    verify: { method: 'GET', url: 'http://c', expectStatus: 200 },
    lift: { method: 'DELETE', url: 'http://c', expectStatus: 200 },
    headers: { authorization: { env: 'HEADER' } },
    timeoutMs: 1000,
  },
]

const base = fixtureConfig(5432, new URL('postgres://nobody@127.0.0.1'), {})
const config = { ...base, regions: base.regions.map(r => ({ ...r, fences: FENCES })) }

test('a program that is started gets no variable that the configuration names as a secret', () => {
  expect(childEnvironments(ENV, config).bare).toEqual({ PATH: '/bin', HOMEREGION_CONFIG: 'c', UNNAMED: 'u' })
})

test('a program that reads or takes secrets keeps the token of the secret store, and no other', () => {
  expect(childEnvironments(ENV, config).secretStores).toEqual({ PATH: '/bin', TOKEN: 't', HOMEREGION_CONFIG: 'c', UNNAMED: 'u' })
})
