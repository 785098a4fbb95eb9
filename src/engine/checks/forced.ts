import { type ApprovalPolicy, showVoice, tallyOf } from '../../domain/approval.ts'
import type { FORCED_CHECKS } from '../../domain/checks.ts'
import { type CheckName, checkSpec } from '../../domain/checks.ts'
import { formatMs, showDuration } from '../../domain/duration.ts'
import { fail, type Observation, pass, unknown } from '../../domain/evidence.ts'
import type { LeaseState } from '../../domain/failover.ts'
import { approvalNeeded } from '../../domain/forced-interlock.ts'
import { showKey } from '../../domain/key.ts'
import { acknowledgementProblem, describeBlocked, showBound } from '../../domain/loss.ts'
import type { PlannedMove } from '../../domain/plan.ts'
import type { CheckHandler } from '../context.ts'
import { type ForcedMove, patienceMs } from '../forced-move.ts'
import { gatherLoss } from '../gather-loss.ts'
import { tryAhead, tryNow } from '../look-ahead.ts'
import { externalFences, stoppedAgeMs } from '../outside-fence.ts'
import { proofsOf } from '../region-fences.ts'
import { regionsAhead } from '../regions-ahead.ts'
import { darkness, lookAtRegion } from '../vantage.ts'

/** What nobody has looked at is unknown, and unknown opens nothing. */
export const notObserved: CheckHandler = (_engine, _subject, use) =>
  Promise.resolve(unknown('this host', checkSpec(use.check).sentence, 'not observed'))

/** The checks of one forced failover. `move` is asked for late: its engine holds these very checks. */
export function forcedChecks(move: () => ForcedMove): Partial<Record<CheckName, CheckHandler>> {
  return {
    'source-dark': async () => await sourceDark(move()),
    'no-region-ahead': async () => await noRegionAhead(move()),
    'loss-acknowledged': async () => await lossAcknowledged(move()),
    approved: async () => await approved(move()),
    'lease-over': async () => await leaseOver(move()),
    'external-fence-holds': async () => await externalFenceHolds(move()),
    'source-attested': () => Promise.resolve(sourceAttested(move())),
    'target-accepts-write': async () => await targetAcceptsWrites(move()),
  } satisfies Partial<Record<(typeof FORCED_CHECKS)[number] | 'target-accepts-write', CheckHandler>>
}

async function sourceDark(move: ForcedMove): Promise<Observation> {
  const { darkAfterMs } = move.settings.policy
  const { own } = move.tries ?? (await tryNow(move))
  move.vantage = await lookAtRegion(move.engine, move.source, darkAfterMs, patienceMs(move.settings), own)
  return darkness(move.vantage, darkAfterMs)
}

const THIRD_REGION_MS = 1_000

async function noRegionAhead({ engine, source, target, moves, settings, tries }: ForcedMove): Promise<Observation> {
  const records = moves.map(({ key, epoch }) => ({ key, epoch, homeRegion: source }))
  // Of the hand-over: a third region that swallows everything must not make the other evidence too old; the gate has given it the whole patience.
  const patience = tries === undefined ? patienceMs(settings) : Math.min(patienceMs(settings), THIRD_REGION_MS)
  return await regionsAhead(engine, { target, others: settings.others, records, patienceMs: patience })
}

async function lossAcknowledged(move: ForcedMove): Promise<Observation> {
  const { engine, source, target, keys, settings, acknowledgement: ack } = move
  move.estimate = await gatherLoss(engine, {
    ...{ source, target, keys, loss: settings.policy.loss, sights: move.vantage?.sights ?? [] },
    stoppedAgeMs: await stoppedAgeMs(engine, move),
    patienceMs: patienceMs(settings),
  })
  const { estimate } = move
  const moving = new Set(move.moves.map(m => m.key))
  const forbidden = estimate.blocked.filter(b => moving.has(b.key))
  const problem = forbidden[0] === undefined ? acknowledgementProblem(ack, estimate) : describeBlocked(forbidden[0])
  const { unknown: bound, recoverable } = estimate.totals
  const bounded = ack.kind === 'any' || (ack.kind === 'token' && ack.boundMs === 'any') ? 'any' : ack.boundMs
  const facts = {
    ...{ estimateSha256: estimate.sha256, kind: ack.kind, boundMs: bounded, fence: move.fence, recoverable },
    ...{ unknownMs: bound.ms, unknownWrites: bound.writes, forbidden: forbidden.length },
  }
  const required = `at most ${typeof bounded === 'string' ? 'whatever it is' : showDuration(bounded)}, as acknowledged (${ack.kind})`
  const counted = recoverable === null ? 'nobody could count what is recoverable' : `${recoverable} recoverable`
  const upTo =
    bound.ms === null
      ? `nobody knows how much; ${counted}`
      : `up to ${showBound(bound.ms)}, ${bound.writes ?? 'an unknown number of'} writes; ${counted}`
  const observer = `agents' looks at ${source}, and ${target} database`
  return problem === null ? pass(observer, required, upTo, facts) : fail(observer, required, problem, facts)
}

export type Consent = {
  /** In force in the control plane, which counts by it in the commit; the file at hand may say otherwise. */
  readonly policy: ApprovalPolicy
  readonly needed: boolean
  readonly given: number
  readonly enough: boolean
  readonly rejectedBy: string | null
  readonly text: string
}

/** Who has agreed so far. The control plane counts again in the commit. */
export async function consent({ engine, journal, fence, moves }: ForcedMove): Promise<Consent> {
  const [policy, said] = await Promise.all([
    engine.controlPlane.approvalPolicy(journal.runId),
    engine.controlPlane.approvals(journal.runId),
  ])
  const tally = tallyOf(policy, said)
  const needed = approvalNeeded(fence, moves.length, policy)
  return {
    ...{ policy, needed, given: tally.given, enough: !needed || tally.enough },
    rejectedBy: said.find(a => a.verdict === 'rejected')?.approver ?? null,
    text: said
      .flatMap(a => (a.verdict === 'approved' ? [`${showVoice(a)}${a.reason.trim() === '' ? '' : `: ${a.reason}`}`] : []))
      .join('; '),
  }
}

async function approved(move: ForcedMove): Promise<Observation> {
  const { policy, needed, given, enough, rejectedBy, text } = await consent(move)
  const observer = 'control plane, by login'
  const keys = move.moves.length
  const many = `${policy.needed} approval${policy.needed === 1 ? '' : 's'} of ${policy.approvers.join(', ') || 'nobody'}`
  const required = needed ? `${many}, or the glass broken; and no rejection` : 'no rejection'
  if (rejectedBy !== null) return fail(observer, required, `rejected by ${rejectedBy}`)
  if (!enough) return fail(observer, required, `${given} of ${policy.needed}`, { of: policy.needed })
  return pass(observer, required, text === '' ? `not needed: ${keys} ${keys === 1 ? 'key' : 'keys'}, fence ${move.fence}` : text)
}

/**
 * What is left of a lease is waited out here once it is less than a gate may pause between two looks: no look comes late then. Longer than
 * the longest pause, so that no pause steps over it.
 */
const LAST_STRETCH_MS = 1_000

/** By whatever run: it is granted to nobody, and over for every failover from the region. */
function isWithheld(lease: LeaseState): boolean {
  return lease.withheldBy !== null
}

async function leaseOver(move: ForcedMove): Promise<Observation> {
  const { engine, source } = move
  const read = async () => (await engine.controlPlane.leaseStates()).find(l => l.region === source)
  let lease = await read()
  const isWaitedOut = (lease: LeaseState) => isWithheld(lease) && lease.leftMs > 0 && lease.leftMs <= LAST_STRETCH_MS
  if (lease !== undefined && isWithheld(lease) && lease.leftMs > 0) tryAhead(move, lease.leftMs, LAST_STRETCH_MS)
  while (lease !== undefined && isWaitedOut(lease)) {
    await engine.clock.sleep(lease.leftMs)
    lease = await read()
  }
  const observer = 'control plane, by its clock'
  const required = 'granted no more, and the last grant is over'
  if (lease === undefined || lease.generation === 0) return unknown(observer, required, `no lease was ever granted to ${source}`)
  const facts = { generation: lease.generation, leftMs: lease.leftMs, marginMs: lease.marginMs }
  if (!lease.stops)
    return unknown(
      observer,
      required,
      `the boundary of ${source} never said that it stops writes at the lease's end (homeregion init)`,
      facts,
    )
  if (!lease.grantsKnown)
    return unknown(
      observer,
      required,
      `the control plane's server is not the one that made the last grant to ${source}, which may have made more`,
      facts,
    )
  if (!isWithheld(lease)) return fail(observer, required, 'nobody withholds it: it may be granted again', facts)
  if (lease.leftMs > 0) return fail(observer, required, `withheld; over in ${formatMs(lease.leftMs)}`, facts)
  return pass(
    observer,
    required,
    `over for ${formatMs(-lease.leftMs)}, margin of ${formatMs(lease.marginMs)} included (grant ${lease.generation})`,
    facts,
  )
}

async function externalFenceHolds(move: ForcedMove): Promise<Observation> {
  const fences = externalFences(move)
  const required = 'each is applied, and its own probe says that it stands'
  const observer = `exec and http fences of ${move.source}`
  if (fences.length === 0) return unknown(observer, required, 'none is configured')
  // Of the gate; the hand-over has its answers already when it asks for this once more.
  if (move.tries === undefined) tryAhead(move, 0, 0)
  const seen = await Promise.all(fences.map(async fence => ({ fence, proofs: await proofsOf(fence) })))
  const text = seen.map(({ fence, proofs }) => `${fence.name}: ${proofs.map(p => p.observed).join(', ')}`).join('; ')
  if (seen.some(s => s.proofs.some(p => p.verdict === 'fail'))) return fail(observer, required, text)
  if (seen.some(s => s.proofs.some(p => p.verdict === 'unknown'))) return unknown(observer, required, text)
  // Found standing by a process that did not apply them: from now on at the latest.
  move.heldAtMs ??= move.engine.clock.monotonicMs()
  return pass(observer, required, text)
}

function sourceAttested({ attestation, source, engine }: ForcedMove): Observation {
  const required = `a person's word, with a reason, that ${source} can no longer write`
  if (attestation === null) return unknown('nobody', required, 'nobody has said it')
  const ageMs = Math.max(0, Math.round(engine.clock.monotonicMs() - attestation.saidAtMs))
  // A time, not an age: this text is the record, and is read long after. By this host's clock, for reading only.
  const saidAt = `${new Date(Date.parse(engine.clock.now()) - ageMs).toISOString().slice(0, 19)}Z`
  return pass(attestation.by, required, `"${attestation.reason}", said by ${attestation.by} at ${saidAt}`, {
    reason: attestation.reason,
    by: attestation.by,
    ageMs,
  })
}

/** Each probe writes as each real login into each table; a sample of thousands is told as what it is. */
const PROBED_KEYS = 5

async function targetAcceptsWrites({ engine, moves, target }: ForcedMove): Promise<Observation> {
  const every = Math.max(1, Math.ceil(moves.length / PROBED_KEYS))
  const sample = moves.filter((_, i) => i % every === 0)
  const observer = `${target} database, as its writers`
  const required = 'every writer admitted under the new epoch'
  const refused: string[] = []
  let admitted = 0
  for (const move of sample) {
    const probes = await engine.region(target).probeWrites(move.key, move.epoch + 1, 'read committed')
    admitted += probes.filter(p => p.outcome === 'admitted').length
    refused.push(...probes.filter(p => p.outcome !== 'admitted').map(p => probed(move, p)))
    if (probes.length === 0) return unknown(observer, required, 'no writer is declared: nothing was probed')
  }
  if (refused.length > 0) return fail(observer, required, refused.slice(0, 4).join('; '))
  return pass(
    observer,
    required,
    `${admitted} of ${admitted} writes admitted, rolled back (${sample.length} of ${moves.length} keys probed)`,
  )
}

function probed(move: PlannedMove, probe: { readonly writer: string; readonly table: string; readonly message: string }): string {
  return `${showKey(move.key)}: ${probe.writer} on ${probe.table}: ${probe.message}`
}
