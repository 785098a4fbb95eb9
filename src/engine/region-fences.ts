import { HomeregionError, isHomeregionError } from '../domain/errors.ts'
import { fail, type Observation, remedyOf, unknown } from '../domain/evidence.ts'
import type { Fence, FenceCause, FenceKind } from '../domain/fence.ts'

/**
 * The order in which fences go up: the boundary first, since it stops every writer in one commit; then what needs our own way to Kafka and the
 * database; exec and http last, because they may cut that way, and nothing behind a cut could still be applied or proved. Each is proved right
 * after it went up, before a later one can take away the way to prove it. They come down in reverse: the boundary last, so that nobody writes
 * before everything else is as it was.
 */
const ORDER: Readonly<Record<FenceKind, number>> = { boundary: 0, kafka: 1, credentials: 2, 'read-only': 3, exec: 4, http: 5 }

export function inOrder(fences: readonly Fence[], direction: 'apply' | 'lift'): readonly Fence[] {
  const sign = direction === 'apply' ? 1 : -1
  return [...fences].sort((a, b) => sign * (ORDER[a.kind] - ORDER[b.kind]))
}

export type FenceName = Pick<Fence, 'region' | 'name' | 'kind'>

/** What became of one fence. `lines` stand as read back; `proofs` are what `verify` saw afterwards, none where the change itself failed. */
export type FenceResult = {
  readonly fence: FenceName
  readonly verb: 'apply' | 'lift' | 'verify'
  readonly error: HomeregionError | null
  readonly lines: readonly string[]
  readonly proofs: readonly Observation[]
}

/** Told as it happens. `interrupted` is asked between two fences. */
export type FenceWatcher = {
  started(fence: FenceName, verb: FenceResult['verb']): void
  ended(result: FenceResult): void
  interrupted(): boolean
}

/**
 * Applies each and proves it. One that fails does not keep the others from being tried: more fence is better. Read again when all were: one that
 * somebody lifted meanwhile does not stand, however well it had been applied.
 */
export async function applyFences(fences: readonly Fence[], cause: FenceCause, watcher: FenceWatcher): Promise<readonly FenceResult[]> {
  const results = await eachInTurn(inOrder(fences, 'apply'), 'apply', watcher, async fence => {
    const lines = await fence.apply(cause)
    return { lines, proofs: await proofsOf(fence) }
  })
  return await Promise.all(
    results.map(async result => {
      const fence = fences.find(f => f.name === result.fence.name)
      if (result.error !== null || fence === undefined) return result
      // One that cannot be read any more was proved when it was applied: exec and http may have cut the way to it.
      const state = await fence.status().then(
        s => s.state,
        () => 'unknown' as const,
      )
      if (state !== 'lifted' && state !== 'lifting') return result
      const gone = fail(
        `${fence.region} fence ${fence.name}`,
        'it stands when all are applied',
        `it is ${state}: by somebody else, meanwhile`,
      )
      watcher.ended({ ...result, lines: [], proofs: [gone] })
      return { ...result, proofs: [...result.proofs, gone] }
    }),
  )
}

/** The wish of each fence that its caller saw stand, by name; one that stood for nobody is not in it, nor one that could not be read. */
export type SeenWishes = ReadonlyMap<string, number>

/** `before` is asked right before each is lifted, and its error keeps this one and all that would follow. Only what was `seen` is lifted. */
export async function liftFences(
  fences: readonly Fence[],
  cause: FenceCause,
  watcher: FenceWatcher,
  seen: SeenWishes,
  before: (fence: Fence) => Promise<void>,
): Promise<readonly FenceResult[]> {
  return await eachInTurn(inOrder(fences, 'lift'), 'lift', watcher, async fence => {
    await before(fence)
    return { lines: await fence.lift(cause, seen.get(fence.name) ?? null), proofs: [] }
  })
}

async function eachInTurn(
  fences: readonly Fence[],
  verb: 'apply' | 'lift',
  watcher: FenceWatcher,
  work: (fence: Fence) => Promise<Pick<FenceResult, 'lines' | 'proofs'>>,
): Promise<readonly FenceResult[]> {
  const results: FenceResult[] = []
  for (const fence of fences) {
    if (watcher.interrupted()) break
    const name = { region: fence.region, name: fence.name, kind: fence.kind }
    watcher.started(name, verb)
    const result = await work(fence).then(
      done => ({ fence: name, verb, error: null, ...done }),
      (error: unknown): FenceResult => ({ fence: name, verb, error: coded(error), lines: [], proofs: [] }),
    )
    results.push(result)
    watcher.ended(result)
    // Another wish for one of them is one for all that would follow.
    if (result.error?.code === 'lift-refused' || result.error?.code === 'fence-asked-again') break
  }
  return results
}

/** What `verify` sees; an error of its own is no proof. */
export async function proofsOf(fence: Fence): Promise<readonly Observation[]> {
  const required = `fence ${fence.name} holds`
  const observer = `${fence.region} fence ${fence.name}`
  try {
    const proofs = await fence.verify()
    return proofs.length > 0 ? proofs : [unknown(observer, required, 'it proved nothing')]
  } catch (error) {
    return [unknown(observer, required, coded(error).text.fact)]
  }
}

/** How the whole ended: null when every fence stands and is proved (or is lifted), else the one error to end the command with. */
export function endOf(results: readonly FenceResult[], asked: number): HomeregionError | null {
  const verb = results[0]?.verb ?? 'apply'
  const region = results[0]?.fence.region ?? ''
  const failed = results.filter(r => r.error !== null)
  const open = results.filter(r => r.error === null && r.proofs.some(p => p.verdict === 'fail'))
  const unproved = results.filter(r => r.error === null && !open.includes(r) && r.proofs.some(p => p.verdict === 'unknown'))
  const good = results.filter(r => r.error === null && !open.includes(r) && !unproved.includes(r))
  const state = [
    part(good, verb === 'lift' ? 'lifted, read back' : 'stands, proved'),
    part(open, 'is applied and does NOT hold'),
    part(unproved, 'is applied, not proved'),
    part(failed, verb === 'lift' ? 'was not lifted as a whole' : 'was not applied as a whole'),
    ...(results.length < asked ? [`${asked - results.length} were not tried`] : []),
  ]
    .filter(text => text !== '')
    .join('; ')
  const remedy = remedyOf(open.flatMap(r => r.proofs.filter(p => p.verdict === 'fail')))
  const next = failed.length > 0 ? `homeregion fence status ${region}` : (remedy ?? `homeregion fence probe ${region}`)
  const first = failed[0]
  if (first?.error !== undefined && first.error !== null) {
    const [only] = failed.length === 1 && results.length === 1 ? failed : []
    if (only?.error != null) return only.error
    const refused = failed.every(r => r.error?.code === first.error?.code)
    const code = refused && first.error.code !== 'unexpected' ? first.error.code : 'fence-failed'
    const fact = `${failed.length} of ${asked} fences of ${region} failed: ${failed.map(r => `${r.fence.name}: ${r.error?.text.fact ?? ''}`).join('; ')}`
    return new HomeregionError(code, { fact, state: `${state}.`, next }, { cause: first.error })
  }
  if (results.length < asked)
    return new HomeregionError('interrupted', { fact: `interrupted after ${results.length} of ${asked} fences`, state: `${state}.`, next })
  if (open.length > 0) return verdictError('fence-open', `${region}: ${names(open)} does not hold`, state, next)
  if (unproved.length > 0) return verdictError('outcome-unknown', `${region}: ${names(unproved)} could not be proved`, state, next)
  return null
}

function verdictError(code: 'fence-open' | 'outcome-unknown', fact: string, state: string, next: string): HomeregionError {
  return new HomeregionError(code, { fact, state: `${state}.`, next })
}

function part(results: readonly FenceResult[], what: string): string {
  return results.length === 0 ? '' : `${names(results)} ${what}`
}

function names(results: readonly FenceResult[]): string {
  return results.map(r => r.fence.name).join(', ')
}

export function coded(error: unknown): HomeregionError {
  if (isHomeregionError(error)) return error
  const text = error instanceof Error ? error.message : String(error)
  return new HomeregionError(
    'unexpected',
    { fact: `unexpected: ${text}`, state: 'What was changed before this is not known here.' },
    { cause: error },
  )
}
