import type { Evidence } from '../domain/evidence.ts'
import type { AttemptEnd, JournalChange, RunLease } from '../domain/journal.ts'
import type { OwnershipRecord } from '../domain/ownership.ts'
import type { Engine } from './context.ts'

/**
 * The journal of one run. What needs no commit of its own (outcomes, evidence) waits for the next one, so a step's outcome and the next
 * step's start are one transaction; nothing with a side effect begins before its `started` is committed.
 */
export type RunJournal = {
  readonly runId: string
  lease(): RunLease
  /** Rides on the next commit. If the process dies before it, the attempt stays open and a resume settles it by looking. */
  buffer(change: { readonly ends?: readonly AttemptEnd[]; readonly evidence?: readonly Evidence[] }): void
  commit(label: string, change: JournalChange): Promise<readonly OwnershipRecord[]>
  /** New token for this run: whatever the old one still has under way is refused from now on. */
  retake(): Promise<void>
}

export function createRunJournal(engine: Engine, first: RunLease): RunJournal {
  let lease = first
  let ends: AttemptEnd[] = []
  let evidence: Evidence[] = []
  return {
    runId: first.runId,
    lease: () => lease,
    buffer: change => {
      ends.push(...(change.ends ?? []))
      evidence.push(...(change.evidence ?? []))
    },
    commit: async (label, change) => {
      await engine.fault(`${label}:before`)
      const joined: JournalChange = {
        ...change,
        ends: [...ends, ...(change.ends ?? [])],
        evidence: [...evidence, ...(change.evidence ?? [])],
      }
      ends = []
      evidence = []
      try {
        const records = await engine.controlPlane.commit(lease, joined)
        await engine.fault(`${label}:after`)
        for (const record of records) engine.operator.report({ type: 'ownership', record })
        return records
      } catch (error) {
        // Kept for the commit that records how it ended; the journal refuses an end it already has, so nothing is written twice.
        evidence = [...(joined.evidence ?? []), ...evidence]
        throw error
      }
    },
    retake: async () => {
      lease = await engine.controlPlane.retakeRun(lease, engine.holder)
    },
  }
}
