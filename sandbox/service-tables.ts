import type { IdempotencyTable } from '../src/service/idempotency.ts'
import type { InboxTable } from '../src/service/inbox-apply.ts'
import type { RelayOptions } from '../src/service/relay.ts'

/** The reference service's tables, as sandbox/sql/business.sql makes them. */
export const OUTBOX: RelayOptions['outbox'] = {
  schema: 'public',
  table: 'outbox',
  columns: {
    key: 'tenant_id',
    eventId: 'event_id',
    aggregateType: 'aggregate_type',
    aggregateId: 'aggregate_id',
    eventType: 'event_type',
    sourceRegion: 'source_region',
    homeRegion: 'home_region',
    ownerEpoch: 'owner_epoch',
    aggregateVersion: 'aggregate_version',
    occurredAt: 'occurred_at',
    payload: 'payload',
    publishedAt: 'published_at',
  },
}

export const INBOX: InboxTable = {
  schema: 'public',
  table: 'inbox',
  columns: {
    eventId: 'event_id',
    key: 'tenant_id',
    ownerEpoch: 'owner_epoch',
    appliedAt: 'applied_at',
    eventType: 'event_type',
    payload: 'payload',
  },
}

export const IDEMPOTENCY: IdempotencyTable = {
  schema: 'public',
  table: 'idempotency',
  key: 'tenant_id',
  id: 'idempotency_key',
  response: 'response',
}

/** Raised by the trigger on the outbox at commit. */
export const OUTBOX_CHANNELS = ['outbox', 'homeregion_outbox'] as const
/** Raised by the boundary whenever its copy of ownership changes. */
export const OWNERSHIP_CHANNEL = 'homeregion_ownership'
