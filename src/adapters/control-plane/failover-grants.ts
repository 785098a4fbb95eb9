export type Grant = {
  readonly table: string
  readonly why: string
  /** Columns the operator may give; the others (who, when) are the database's own defaults. */
  readonly insert?: readonly string[]
  readonly update?: readonly string[]
}

const LEASE = ['generation', 'agent', 'over_at', 'duration_ms', 'margin_ms', 'withheld_by', 'stops', 'life']
const LOOK = ['taken_at', 'unpublished', 'oldest_unpublished_ms', 'not_applied', 'highest_per_second']
const PROOFS = [
  ...['dark_evidence_id', 'ahead_evidence_id', 'fence_check', 'fence_evidence_id', 'loss_evidence_id', 'target_evidence_id'],
  'approved_evidence_id',
]

/** What the operator login may do to the tables of leases and forced failovers. */
export const FAILOVER_GRANTS: readonly Grant[] = [
  { table: 'region_lease', why: 'Grant and withhold leases.', insert: ['region', ...LEASE], update: LEASE },
  { table: 'agent_lead', why: 'Lead the agents.', insert: ['agent', 'until'], update: ['agent', 'until', 'actor'] },
  { table: 'region_observation', why: 'Keep the newest look at a region.', insert: ['region', 'observer', ...LOOK], update: LOOK },
  {
    table: 'region_sight',
    why: 'Keep the last contact with a region.',
    insert: ['region', 'vantage', 'what', 'last_contact_at'],
    update: ['last_contact_at'],
  },
  { table: 'approval_policy', why: 'Read who approves.' },
  { table: 'approval', why: 'Approve and reject.', insert: ['run_id', 'starter', 'verdict', 'reason', 'break_glass'] },
  {
    table: 'ack_token',
    why: 'Issue acknowledgement tokens.',
    insert: ['hash', 'plan_id', 'keys_sha256', 'estimate_sha256', 'bound_ms', 'expires_at'],
  },
  { table: 'redeemed_token', why: 'Use one for a run.', insert: ['hash', 'run_id', 'plan_id', 'expires_at'] },
  {
    table: 'acknowledgement',
    why: 'Own a loss.',
    insert: ['id', 'run_id', 'plan_id', 'kind', 'bound_ms', 'keys_sha256', 'token_hash', 'token_expires_at', 'token_used_at'],
  },
  { table: 'region_standing', why: 'Say which regions are in exile.', insert: ['region'], update: ['exiled'] },
  {
    table: 'forced_failover',
    why: 'Hand ownership over without catch-up, on evidence and an acknowledgement.',
    insert: [
      ...['id', 'run_id', 'source', 'target', 'keys', 'attempt_id', 'token', ...PROOFS, 'approval_policy_id', 'above_keys'],
      ...['acknowledgement_id', 'bound_ms', 'keys_sha256', 'estimate_sha256', 'estimate'],
    ],
  },
  {
    table: 'forced_activation',
    why: 'The same, key by key.',
    insert: [
      ...['forced_id', 'nth', 'run_id', 'key', 'source', 'target', 'epoch', 'from_seq', 'keys', 'bound_ms', 'rpo', 'rpo_ms'],
      ...['unknown_ms', 'unknown_writes', 'recoverable', 'applied_version', 'applied_age_ms'],
    ],
  },
  {
    table: 'exile',
    why: 'Send a region into exile, and bring it back.',
    insert: ['id', 'region', 'forced_id'],
    update: ['fenced_at', 'listed_at', 'level_at', 'ended_at', 'ended_by', 'end_reason'],
  },
  {
    table: 'rejoin_runbook',
    why: 'Pin the runbook a region comes back by.',
    insert: ['exile_id', 'nth', 'name', 'text', 'sha256', 'origin'],
  },
  { table: 'rejoin_step', why: "Record that an author's step of it was done.", insert: ['exile_id', 'nth', 'step'] },
  {
    table: 'reconcile_item',
    why: 'List what only the former source holds, and decide it.',
    insert: ['run_id', 'id', 'key', 'kind', 'subject', 'content'],
    update: ['decision', 'reason', 'decided_at', 'decided_by'],
  },
  {
    table: 'drill',
    why: 'Record rehearsals.',
    insert: [...['id', 'source', 'target', 'keys', 'outcome', 'recovery_ms', 'objective_ms', 'duplicates', 'gaps', 'took_ms', 'detail']],
  },
  {
    table: 'drill_begun',
    why: 'Record where the keys of a rehearsal have to return to, before the first of them moves.',
    insert: ['id', 'home', 'target', 'keys', 'holder_host', 'holder_pid', 'holder_user'],
  },
]
