import type { FenceKind } from '../../domain/fence.ts'
import type { CheckSubject, Engine } from '../context.ts'

export type StandingFences = {
  /** Fences that do not hold; each is a fail. */
  readonly problems: readonly string[]
  /** What could not be seen. */
  readonly unseen: readonly string[]
  /** SQLSTATEs by which a write may be refused because one of them stands, beside the boundary's own. */
  readonly refusals: readonly string[]
  readonly names: readonly string[]
}

/** How a proven fence of the whole region answers a writer, before the key's own boundary is asked. */
const REFUSALS: Readonly<Partial<Record<FenceKind, readonly string[]>>> = { credentials: ['28000', '28P01'], 'read-only': ['42501'] }

/** The fences of a whole region that this run applied are desired state: each is read back and proved again. */
export async function standingFences(engine: Engine, subject: CheckSubject, region: string): Promise<StandingFences> {
  const names = subject.standing.filter(s => s.region === region).map(s => s.name)
  const looks = await Promise.all(
    engine
      .fences(region)
      .filter(f => names.includes(f.name))
      .map(async fence => {
        const [status, proofs] = await Promise.all([fence.status(), fence.verify()])
        const [bad, unseen] = (['fail', 'unknown'] as const).map(verdict =>
          proofs.filter(p => p.verdict === verdict).map(p => `fence ${fence.name}: ${p.observed}`),
        )
        const gone = status.state === 'lifted' || status.state === 'lifting'
        return {
          problems: gone ? [`fence ${fence.name} is ${status.state}, this run had applied it`] : (bad ?? []),
          unseen: [
            ...(status.state === 'unknown' ? [`fence ${fence.name} could not be read: ${status.holds.join('; ')}`] : []),
            ...(proofs.length === 0 ? [`fence ${fence.name} proved nothing`] : []),
            ...(unseen ?? []),
          ],
          refusals: !gone && proofs.length > 0 && proofs.every(p => p.verdict === 'pass') ? (REFUSALS[fence.kind] ?? []) : [],
        }
      }),
  )
  return {
    problems: looks.flatMap(l => l.problems),
    unseen: looks.flatMap(l => l.unseen),
    refusals: looks.flatMap(l => l.refusals),
    names,
  }
}
