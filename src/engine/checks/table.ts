import type { CheckName } from '../../domain/checks.ts'
import type { CheckHandler } from '../context.ts'
import { fenceHolds } from './fence-holds.ts'
import { notObserved } from './forced.ts'
import { boundaryInstalled, fenceCoversWriters, regionsReachable, targetCanWrite } from './regions.ts'
import { outboxPublished, writesInFlight } from './source.ts'
import { barrierApplied, idempotencyCarried, targetAcceptsWrite, versionsEqual } from './target.ts'
import { eventsReplicated, replicationBehind } from './transport.ts'
import { delayedEvents, staleRejections } from './watch.ts'

/** One handler a check; a check without one does not compile. */
export const CHECK_HANDLERS: Record<CheckName, CheckHandler> = {
  'regions-reachable': regionsReachable,
  'boundary-installed': boundaryInstalled,
  'fence-covers-writers': fenceCoversWriters,
  'target-can-write': targetCanWrite,
  'replication-behind': replicationBehind,
  'writes-in-flight': writesInFlight,
  'outbox-published': outboxPublished,
  'events-replicated': eventsReplicated,
  'fence-holds': fenceHolds,
  'barrier-applied': barrierApplied,
  'versions-equal': versionsEqual,
  'idempotency-carried': idempotencyCarried,
  'target-accepts-write': targetAcceptsWrite,
  'stale-rejections': staleRejections,
  'delayed-events': delayedEvents,
  'source-dark': notObserved,
  'no-region-ahead': notObserved,
  'lease-over': notObserved,
  'external-fence-holds': notObserved,
  'source-attested': notObserved,
  'loss-acknowledged': notObserved,
  approved: notObserved,
}
