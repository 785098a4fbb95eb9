import { isHomeregionError } from '../../domain/errors.ts'
import type { Json } from '../../domain/evidence.ts'
import type { Fence, FenceCause, FenceEvent, FenceJournal } from '../../domain/fence.ts'
import type { NewEntry } from './fence-entry.ts'

/**
 * A fence whose applying and lifting is told in the fence log, whoever asks for it: a person or a runbook. The log never stands in the way of
 * a fence: where it cannot be kept, the fence goes up all the same and says so.
 */
export function createLoggedFence(fence: Fence, journal: FenceJournal, entry: NewEntry): Fence {
  const { region, name, kind } = fence
  const tell = async (event: FenceEvent, cause: FenceCause, detail: Json): Promise<readonly string[]> => {
    try {
      await journal.keep([entry({ region, fence: name, kind, event, by: cause.by, runId: cause.runId, reason: cause.reason, detail })])
      return []
    } catch (error) {
      return [`NOT in the fence log of this machine: ${text(error)}`]
    }
  }
  const logged = async (verb: 'apply' | 'lift', cause: FenceCause, work: () => Promise<readonly string[]>): Promise<readonly string[]> => {
    const done: FenceEvent = verb === 'apply' ? 'applied' : 'lifted'
    const warning = await tell(`${verb}-started`, cause, null)
    // A lift is known to the control plane before it begins, so that nobody takes it for a fence found open. An emergency waits for nothing.
    const told = journal.handOver().catch(() => null)
    if (verb === 'lift') await told
    try {
      const lines = await work()
      const warnings = [...warning, ...(await tell(done, cause, { holds: lines }))]
      await told
      await journal.handOver().catch(() => null)
      return [...lines, ...new Set(warnings)]
    } catch (error) {
      await tell(`${verb}-failed`, cause, { error: text(error), state: isHomeregionError(error) ? (error.text.state ?? null) : null })
      await told
      await journal.handOver().catch(() => null)
      throw error
    }
  }
  return {
    region,
    name,
    kind,
    plan: async direction => await fence.plan(direction),
    apply: async cause => await logged('apply', cause, async () => await fence.apply(cause)),
    verify: async () => await fence.verify(),
    lift: async (cause, asked) => await logged('lift', cause, async () => await fence.lift(cause, asked)),
    status: async () => await fence.status(),
    close: async () => {
      await fence.close()
    },
  }
}

function text(error: unknown): string {
  return isHomeregionError(error) ? `${error.code}: ${error.text.fact}` : error instanceof Error ? error.message : String(error)
}
