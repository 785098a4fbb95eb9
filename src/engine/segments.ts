import type { Evidence } from '../domain/evidence.ts'
import { OWNERSHIP_ACTIONS, type Step } from '../domain/runbook.ts'

/** A runbook cut where the engine treats it differently: once before any key moves, once for each key, once after the last. */
export type Parts = { readonly before: readonly Step[]; readonly perKey: readonly Step[]; readonly after: readonly Step[] }

export function partsOf(steps: readonly Step[]): Parts {
  const movesOwnership = (step: Step) => step.action !== null && OWNERSHIP_ACTIONS.some(kind => kind === step.action?.kind)
  const first = steps.findIndex(movesOwnership)
  const last = steps.findLastIndex(movesOwnership)
  if (first === -1) return { before: steps, perKey: [], after: [] }
  return { before: steps.slice(0, first), perKey: steps.slice(first, last + 1), after: steps.slice(last + 1) }
}

/**
 * A step with an action, and the steps without one that follow it: their gates are looked at together, so that each round trip serves all
 * of them. The order of what is accepted stays the order of the list (gate.ts).
 */
export type Segment = { readonly head: Step; readonly steps: readonly Step[] }

export function segmentsOf(steps: readonly Step[]): readonly Segment[] {
  const starts = steps.flatMap((step, index) => (step.action !== null || index === 0 ? [index] : []))
  return starts.flatMap((from, i) => {
    const part = steps.slice(from, starts[i + 1])
    return part[0] === undefined ? [] : [{ head: part[0], steps: part }]
  })
}

export function describeEvidence(evidence: readonly Evidence[]): string {
  return evidence
    .filter(e => e.verdict !== 'pass')
    .map(e => `${e.check}: ${e.verdict}: ${e.observed}`)
    .join('; ')
}
