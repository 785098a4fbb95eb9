import type pg from 'pg'
import { afterAll, beforeAll, expect, test } from 'vitest'
import type { ControlPlane } from '../../src/domain/ports.ts'
import { type RegisterParts, registerEverywhere, syncRegions } from '../../src/engine/register-keys.ts'
import { codedError } from '../unit/coded-error.ts'
import { type RegionFixture, startRegion } from './boundary-fixture.ts'
import { type Fixture, startFixture } from './control-plane-fixture.ts'
import { codeOf, INSERT } from './region-boundary-fixture.ts'

/** Both regions may write, and region-a is where a key is written that nobody registered. */
let control: Fixture
let [a, b]: RegionFixture[] = []
let store: ControlPlane
let writers: readonly pg.Client[]

beforeAll(async () => {
  const named = (name: string) => startRegion({ name, defaultHome: 'region-a' })
  ;[control, a, b] = await Promise.all([startFixture(), named('region-a'), named('region-b')])
  store = control.store()
  writers = await Promise.all([a.login('app_writer'), b.login('app_writer')])
})
afterAll(async () => await Promise.allSettled([control?.stop(), a?.stop(), b?.stop()]))

function parts(controlPlane: RegisterParts['controlPlane'] = store): RegisterParts {
  if (a === undefined || b === undefined) throw new Error('no region has started')
  return { controlPlane, regions: [a.db, b.db], defaultHome: 'region-a' }
}

/** SQLSTATE of a first write in region-a and in region-b; null where it is admitted. */
async function writes(key: string): Promise<readonly (string | null)[]> {
  return await Promise.all(writers.map(async writer => await codeOf(writer.query(INSERT, [key]))))
}

test('a key that the default home has written is not opened elsewhere, and can be registered where it is written', async () => {
  expect(await writes('lazy')).toEqual([null, 'HR003'])
  const error = await codedError(() => registerEverywhere(parts(), [{ key: 'lazy', homeRegion: 'region-b' }]))
  expect(error).toMatchObject({ code: 'key-exists', text: { state: 'Nothing was registered.' } })
  expect(error.text.fact).toContain('region-a has lazy at home in region-a under epoch 1')
  expect(await store.ownership(['lazy'])).toEqual([])
  expect(await writes('lazy')).toEqual([null, 'HR003'])
  await registerEverywhere(parts(), [{ key: 'lazy', homeRegion: 'region-a' }])
  expect(await syncRegions(parts())).toBe(1)
  expect(await writes('lazy')).toEqual([null, 'HR001'])
})

test('a key whose first write is under way while it is registered elsewhere stays with the one region that writes it', async () => {
  const writer = writers[0]
  if (writer === undefined) throw new Error('no writer')
  const register: ControlPlane['register'] = async keys => {
    await writer.query('begin')
    await writer.query(INSERT, ['raced'])
    const records = await store.register(keys)
    // The region is told while this is open, and waits for it.
    setTimeout(() => void writer.query('commit'), 300)
    return records
  }
  const racing = { ...store, register }
  const error = await codedError(() => registerEverywhere(parts(racing), [{ key: 'raced', homeRegion: 'region-b' }]))
  expect(error.code).toBe('needs-human')
  expect(error.text.fact).toBe('region-a has raced at home in region-a under epoch 1, the control plane in region-b under epoch 1')
  expect(await b?.db.read('raced')).toBeNull()
  expect(await writes('raced')).toEqual([null, 'HR003'])
  expect((await codedError(() => syncRegions(parts()))).text.fact).toBe(error.text.fact)
  expect(await writes('raced')).toEqual([null, 'HR003'])
})

test('a new key is written at its home alone, the default home included', async () => {
  await registerEverywhere(parts(), [{ key: 'new', homeRegion: 'region-b' }])
  expect(await writes('new')).toEqual(['HR001', null])
})
