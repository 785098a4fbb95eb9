import { randomUUID } from 'node:crypto'
import { type AuditFinding, SQLSTATE } from '../../src/domain/boundary.ts'
import { isHomeregionError } from '../../src/domain/errors.ts'
import { fail, type Observation, pass } from '../../src/domain/evidence.ts'
import type { FenceKind } from '../../src/domain/fence.ts'
import { liftStanding } from '../rig/lift-standing.ts'
import type { MatrixScene } from './fence-matrix-scene.ts'
import type { Writer } from './fence-matrix-writers.ts'

const CAUSE = { reason: 'a test', by: 'test', runId: null }

export const COLUMNS = ['key boundary', 'region boundary', 'credentials', 'read-only'] as const
type Column = (typeof COLUMNS)[number]

type OneFence = {
  readonly kind: FenceKind
  /** What it refused to stand on, in the words of the operator; null: it stands. */
  apply(): Promise<string | null>
  verify(): Promise<readonly Observation[]>
  lift(): Promise<void>
}

/** What came of one fence alone against one writer. */
export type Outcome = { readonly text: string; readonly problem: string | null }

/** How a write went that nothing stops: what a fence is held against. */
export async function withoutFence(scene: MatrixScene, writer: Writer): Promise<string | null> {
  return await prepared(scene, writer, async attempt => {
    const held = await writer.hold(scene, attempt)
    const refused = await held.finish()
    await held.close()
    return refused ?? ((await scene.landed(attempt)) ? null : 'it was not there afterwards')
  })
}

export async function against(scene: MatrixScene, column: Column, writer: Writer): Promise<Outcome> {
  return await prepared(scene, writer, async attempt => {
    const before = await scene.state()
    const held = await writer.hold(scene, attempt)
    scene.forget()
    const fence = fenceOf(scene, column, attempt.key)
    const outcome = await judged(scene, fence, writer, attempt, held)
    await held.close()
    await fence.lift()
    scene.forget()
    const after = await scene.state()
    const changed = [
      ...before.filter(l => !after.includes(l)).map(l => `- ${l}`),
      ...after.filter(l => !before.includes(l)).map(l => `+ ${l}`),
    ]
    return changed.length === 0 ? outcome : { ...outcome, problem: `not as before after the lift: ${changed.join('\n')}` }
  })
}

type Attempt = Parameters<Writer['hold']>[1]
type Held = Awaited<ReturnType<Writer['hold']>>

async function prepared<T>(scene: MatrixScene, writer: Writer, work: (attempt: Attempt) => Promise<T>): Promise<T> {
  for (const sql of writer.setup(scene)) await scene.admin.query(sql)
  try {
    return await work({ key: await scene.key(writer.home), id: randomUUID() })
  } finally {
    for (const sql of writer.teardown) await scene.admin.query(sql)
  }
}

async function judged(scene: MatrixScene, fence: OneFence, writer: Writer, attempt: Attempt, held: Held): Promise<Outcome> {
  const names = (text: string) => held.names.some(name => new RegExp(`(^|[^\\w-])${name}([^\\w-]|$)`).test(text))
  const refusal = await fence.apply()
  if (refusal !== null) {
    const problem = names(refusal) ? null : `apply did not name ${held.names.join(', ')}: ${refusal}`
    await held.finish()
    scene.forget()
    // Once it has ended the same verb finishes what it began.
    const again = await fence.apply()
    const left = again === null ? open(await fence.verify()) : [again]
    return {
      text: 'the fence does not pass, and names it',
      problem: problem ?? (left.length === 0 ? null : `and then: ${left.join('; ')}`),
    }
  }
  const observations = await fence.verify()
  const refused = await held.finish()
  const landed = await scene.landed(attempt)
  if (refused === null && !landed) return { text: '?', problem: 'it was neither refused nor written' }
  const doubts = observations.filter(o => o.verdict !== 'pass').map(o => `${o.required}: ${o.observed}`)
  if (!landed) {
    const text = refused === 'ended' ? 'stopped, session ended' : `stopped (${refused ?? ''})`
    return { text, problem: doubts.length === 0 ? null : `stopped, and yet not proved: ${doubts.join('; ')}` }
  }
  const doubt = doubts.find(names)
  if (doubt !== undefined) return { text: 'the proof fails, and names it', problem: null }
  const found = (await scene.db.auditWriters()).filter(f => f.around.includes(fence.kind) && held.names.includes(f.subject) && !f.accepted)
  if (found.length > 0) return { text: `not stopped; reported: audit, ${kinds(found)}`, problem: null }
  const told = observations.find(o => names(o.observed))
  if (told !== undefined) return { text: 'not stopped; reported: proof, left on purpose', problem: null }
  if (writer.copies === true && writer.home !== 'region-a') return { text: 'goes on: a copy of what its home wrote', problem: null }
  return { text: 'NOT STOPPED, NOT REPORTED', problem: `a write went through and nothing names ${held.names.join(', ')}` }
}

function kinds(found: readonly AuditFinding[]): string {
  return [...new Set(found.map(f => `\`${f.kind}\``))].sort().join(', ')
}

function open(observations: readonly Observation[]): readonly string[] {
  return observations.filter(o => o.verdict !== 'pass').map(o => `${o.required}: ${o.observed}`)
}

function fenceOf(scene: MatrixScene, column: Column, key: string): OneFence {
  if (column === 'key boundary') return keyFence(scene, key)
  const fence = scene.fences[column === 'region boundary' ? 'boundary' : column]
  return {
    kind: fence.kind,
    apply: async () => await words(fence.apply(CAUSE)),
    verify: async () => await fence.verify(),
    lift: async () => void (await liftStanding(fence, CAUSE)),
  }
}

/** As the steps `drain` and `fence` of a transfer do it. */
function keyFence({ db }: MatrixScene, key: string): OneFence {
  return {
    kind: 'boundary',
    apply: async () => {
      const row = await db.read(key)
      if (row?.homeRegion !== 'region-a') return null
      if (row.state === 'ACTIVE') await db.drain(key, 1, 1)
      const flight = await db.inFlight(key, 300)
      if (flight.length > 0) return flight.map(w => `pid ${w.pid ?? '-'} ${w.role ?? ''} ${w.gid ?? ''}`).join('; ')
      return await words(db.fence(key, 1, 1, randomUUID()))
    },
    verify: async () => {
      const probes = [...(await db.probeWrites(key, null, 'read committed')), ...(await db.probeWrites(key, null, 'repeatable read'))]
      const required = `every write refused with ${SQLSTATE.notHome}`
      return probes.map(p => {
        const observed = `${p.writer} on ${p.table} (${p.isolation}): ${p.sqlstate ?? p.outcome}`
        return p.outcome === 'refused' && p.sqlstate === SQLSTATE.notHome
          ? pass('region-a', required, observed)
          : fail('region-a', required, observed)
      })
    },
    lift: async () => {
      const row = await db.read(key)
      if (row?.homeRegion === 'region-a') await db.open(key, 2, 1)
    },
  }
}

async function words(work: Promise<unknown>): Promise<string | null> {
  try {
    await work
    return null
  } catch (error) {
    if (!isHomeregionError(error)) throw error
    return [error.text.fact, error.text.state].join(' ')
  }
}
