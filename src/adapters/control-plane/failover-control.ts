import type { Config } from '../../domain/config.ts'
import type { FailoverControl } from '../../domain/failover.ts'
import type { Connection } from '../postgres/connection.ts'
import { findAckToken, issueAckToken, lastAckTokenOf, redeemAckToken, tokenHash } from './ack-tokens.ts'
import { approve, readApprovalPolicy, readApprovals } from './approvals.ts'
import { askDrillToYield, beginDrill, drillAskedToYield, lastDrills, recordDrill, unfinishedDrills } from './drills.ts'
import { endExile, listExiles, noteExile } from './exiles.ts'
import { listForcedFailovers } from './forced-queries.ts'
import { readObservations, readSights, recordObservation } from './observations.ts'
import { countReconcileItems, decideReconcileItem, putReconcileItems, readReconcileItems } from './reconcile-items.ts'
import { grantLease, leadAgents, noteLeaseStops, readLeases, releaseLease, withholdLease } from './region-leases.ts'

/** What forced failovers stand on, over the same session. `coded` turns what the database says into our errors. */
export function createFailoverControl(
  connection: Connection,
  policy: Pick<Config['policy'], 'ackTokenMs'>,
  coded: <T>(work: () => Promise<T>) => Promise<T>,
): FailoverControl {
  return {
    recordObservation: async report => await coded(async () => await recordObservation(connection, report)),
    observations: async () => await coded(async () => await readObservations(connection)),
    sights: async () => await coded(async () => await readSights(connection)),
    leadAgents: async (agentId, forMs) => await coded(async () => await leadAgents(connection, agentId, forMs)),
    grantLease: async (region, agentId, durationMs, marginMs, above, compared) =>
      await coded(async () => await grantLease(connection, region, agentId, durationMs, marginMs, above, compared)),
    noteLeaseStops: async (region, agentId, stops) => await coded(async () => await noteLeaseStops(connection, region, agentId, stops)),
    withholdLease: async (region, lease) => await coded(async () => await withholdLease(connection, region, lease)),
    releaseLease: async (region, lease) => await coded(async () => await releaseLease(connection, region, lease)),
    leaseStates: async () => await coded(async () => await readLeases(connection)),
    issueAckToken: async about => await coded(async () => await issueAckToken(connection, about, policy.ackTokenMs)),
    ackToken: async token => await coded(async () => await findAckToken(connection, tokenHash(token))),
    ackTokenOf: async runId => await coded(async () => await lastAckTokenOf(connection, runId)),
    redeemAckToken: async (lease, hash) => await coded(async () => await redeemAckToken(connection, lease, hash)),
    approvalPolicy: async runId => await coded(async () => await readApprovalPolicy(connection, runId)),
    approve: async (runId, verdict, reason, breakGlass) =>
      await coded(async () => await approve(connection, runId, verdict, reason, breakGlass)),
    approvals: async runId => await coded(async () => await readApprovals(connection, runId)),
    forcedFailovers: async filter => await coded(async () => await listForcedFailovers(connection, filter)),
    exiles: async region => await coded(async () => await listExiles(connection, region ?? null)),
    noteExile: async (region, step) => await coded(async () => await noteExile(connection, region, step)),
    endExile: async (region, reason) => await coded(async () => await endExile(connection, region, reason)),
    putReconcileItems: async (runId, items) => await coded(async () => await putReconcileItems(connection, runId, items)),
    reconcileCounts: async runIds => await coded(async () => await countReconcileItems(connection, runIds)),
    reconcileItems: async (runId, filter) => await coded(async () => await readReconcileItems(connection, runId, filter)),
    decideReconcileItem: async (runId, id, decision, reason) =>
      await coded(async () => await decideReconcileItem(connection, runId, id, decision, reason)),
    beginDrill: async drill => await coded(async () => await beginDrill(connection, drill)),
    unfinishedDrills: async () => await coded(async () => await unfinishedDrills(connection)),
    recordDrill: async result => await coded(async () => await recordDrill(connection, result)),
    askDrillToYield: async runId => await coded(async () => await askDrillToYield(connection, runId)),
    drillAskedToYield: async runId => await coded(async () => await drillAskedToYield(connection, runId)),
    lastDrills: async () => await coded(async () => await lastDrills(connection)),
  }
}
