import type { ProbeResult } from '../domain/boundary.ts'
import { fail, type Observation, pass, unknown, type Verdict } from '../domain/evidence.ts'
import type { Fence, FenceEntry, FenceJournal, FenceStatus } from '../domain/fence.ts'
import type { RegionDatabase } from '../domain/ports.ts'
import { coded, type FenceName, inOrder, proofsOf } from './region-fences.ts'

/** Keys at home in the region that are written in vain; a region without any is tried with one that nobody has. */
const SAMPLE = 3
const NOBODYS_KEY = 'homeregion-fence-probe'

/** Login refused. It stops a write only where a fence is what refuses it. */
const LOGIN_REFUSALS: readonly (string | null)[] = ['28000', '28P01']

export type FenceLook = {
  readonly fence: FenceName
  readonly status: FenceStatus
  readonly told: FenceEntry | null
  readonly foundLifted: boolean
}

/** `region` says what it holds, the log says what it should hold. */
export async function lookAtFences(fences: readonly Fence[], journal: FenceJournal): Promise<readonly FenceLook[]> {
  const before = await journal.told()
  const looks = await Promise.all(inOrder(fences, 'apply').map(async fence => ({ fence, status: await statusOf(fence) })))
  // Asked again: a fence that somebody is just applying or lifting is not one that was found open.
  const after = looks.some(l => l.status.state === 'lifted') ? await journal.told() : before
  return looks.map(({ fence, status }) => {
    const of = (entries: readonly FenceEntry[]) => entries.find(e => e.region === fence.region && e.fence === fence.name) ?? null
    const told = of(after.entries)
    const stands = told?.event === 'applied' || told?.event === 'found-lifted'
    const foundLifted = status.state === 'lifted' && stands && of(before.entries)?.id === told.id
    return { fence: { region: fence.region, name: fence.name, kind: fence.kind }, status, told, foundLifted }
  })
}

async function statusOf(fence: Fence): Promise<FenceStatus> {
  try {
    return await fence.status()
  } catch (error) {
    return { state: 'unknown', since: null, cause: null, asked: null, holds: [coded(error).text.fact] }
  }
}

export type FenceProbe = {
  readonly fences: readonly (FenceLook & { readonly proofs: readonly Observation[] })[]
  /** One observation for each declared writer. */
  readonly writes: readonly Observation[]
  readonly verdict: Verdict
}

/** Every fence that stands or should, proved again; and a real write as each declared writer, always rolled back. */
export async function probeFences(
  fences: readonly Fence[],
  database: RegionDatabase,
  journal: FenceJournal,
  writers: readonly string[],
): Promise<FenceProbe> {
  const looks = await lookAtFences(fences, journal)
  const proved = await Promise.all(
    looks
      .filter(look => look.status.state !== 'lifted' || look.foundLifted)
      .map(async look => ({ ...look, proofs: [...record(look), ...(await proofs(look, fences))] })),
  )
  const refusesLogins = proved.some(p => p.fence.kind === 'credentials' && p.proofs.every(o => o.verdict === 'pass'))
  const writes = await writesOf(database, writers, refusesLogins)
  const standing = proved.some(p => p.status.state === 'applied') ? [] : [fail(database.region, 'a fence stands', 'none stands')]
  const all = [...proved.flatMap(p => p.proofs), ...writes, ...standing]
  const verdict = all.some(o => o.verdict === 'fail') ? 'fail' : all.some(o => o.verdict === 'unknown') ? 'unknown' : 'pass'
  return { fences: proved, writes: [...writes, ...standing], verdict }
}

async function proofs(look: FenceLook, fences: readonly Fence[]): Promise<readonly Observation[]> {
  const fence = fences.find(f => f.name === look.fence.name)
  return fence === undefined || look.status.state === 'lifted' ? [] : await proofsOf(fence)
}

/** The record of the fence itself; a fence that is half-done stands for nothing. */
function record(look: FenceLook): readonly Observation[] {
  const { fence, status, told, foundLifted } = look
  const observer = `${fence.region} fence ${fence.name}`
  const required = 'applied'
  if (foundLifted)
    return [fail(observer, required, `LIFTED behind the back of its record: applied by ${told?.by ?? '?'} at ${told?.at ?? '?'}`)]
  if (status.state === 'unknown') return [unknown(observer, required, status.holds.join('; '))]
  if (status.state === 'applied') return [pass(observer, required, `applied since ${status.since ?? '?'}`)]
  return [fail(observer, required, `${status.state}: a process ended on the way; the same command finishes it`)]
}

async function writesOf(database: RegionDatabase, writers: readonly string[], refusesLogins: boolean): Promise<readonly Observation[]> {
  const required = 'every write refused'
  const observer = (writer: string) => `${database.region} database as ${writer}`
  try {
    const home = await database.homeKeys({ after: null, limit: SAMPLE })
    const keys = home.length > 0 ? home.map(row => ({ key: row.key, epoch: row.epoch })) : [{ key: NOBODYS_KEY, epoch: null }]
    const results: ProbeResult[] = []
    for (const { key, epoch } of keys) results.push(...(await database.probeWrites(key, epoch, 'read committed')))
    return writers.map(writer => {
      const mine = results.filter(r => r.writer === writer)
      return { ...judged(mine, refusesLogins), observer: observer(writer), required }
    })
  } catch (error) {
    return writers.map(writer => unknown(observer(writer), required, coded(error).text.fact))
  }
}

function judged(results: readonly ProbeResult[], refusesLogins: boolean): Pick<Observation, 'verdict' | 'observed'> {
  const admitted = results.filter(r => r.outcome === 'admitted')
  if (admitted.length > 0) return { verdict: 'fail', observed: `ADMITTED in ${distinct(admitted.map(r => r.table))}` }
  const undecided = results.filter(r => r.outcome === 'unknown' && !(refusesLogins && LOGIN_REFUSALS.includes(r.sqlstate)))
  if (results.length === 0 || undecided.length > 0) return { verdict: 'unknown', observed: undecided[0]?.message ?? 'no write was tried' }
  return { verdict: 'pass', observed: `${results.length} writes refused with ${distinct(results.map(r => r.sqlstate ?? '?'))}` }
}

function distinct(words: readonly string[]): string {
  return [...new Set(words)].join(', ')
}
