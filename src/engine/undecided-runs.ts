import type { Exile } from '../domain/failover.ts'
import type { ControlPlane } from '../domain/ports.ts'

/** Runs of the exile on whose list something is undecided, oldest first: only these are worth naming to whoever has to decide. */
export async function undecidedRuns(
  controlPlane: Pick<ControlPlane, 'reconcileCounts'>,
  { runIds, undecided }: Pick<Exile, 'runIds' | 'undecided'>,
): Promise<readonly string[]> {
  if (undecided === 0) return []
  return (await controlPlane.reconcileCounts(runIds)).filter(count => count.undecided > 0).map(count => count.runId)
}
