import { HomeregionError } from '../../domain/errors.ts'
import type { FailoverControl } from '../../domain/failover.ts'

const pending = (): Promise<never> =>
  Promise.reject(
    new HomeregionError('unexpected', { fact: 'this part of the control plane is not there yet', state: 'Nothing was changed.' }),
  )

export function createFailoverControl(): FailoverControl {
  return {
    recordObservation: pending,
    observations: pending,
    sights: pending,
    leadAgents: pending,
    grantLease: pending,
    withholdLease: pending,
    releaseLease: pending,
    leaseStates: pending,
    issueAckToken: pending,
    ackToken: pending,
    approve: pending,
    approvals: pending,
    forcedFailovers: pending,
    exiles: pending,
    noteExile: pending,
    endExile: pending,
    putReconcileItems: pending,
    reconcileItems: pending,
    decideReconcileItem: pending,
    recordDrill: pending,
    lastDrills: pending,
  }
}
