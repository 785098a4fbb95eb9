import type { Exile } from '../domain/failover.ts'
import type { ControlPlane } from '../domain/ports.ts'

/** Runs of the exile on whose list something is undecided, oldest first: only these are worth naming to whoever has to decide. */
export async function undecidedRuns(
  controlPlane: Pick<ControlPlane, 'reconcileItems'>,
  { runIds, undecided }: Pick<Exile, 'runIds' | 'undecided'>,
): Promise<readonly string[]> {
  if (undecided === 0) return []
  const found = await Promise.all(
    runIds.map(async runId => ((await controlPlane.reconcileItems(runId, { undecided: true, limit: 1 })).length > 0 ? [runId] : [])),
  )
  return found.flat()
}
