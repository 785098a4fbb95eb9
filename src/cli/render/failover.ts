import { formatMs } from '../../domain/duration.ts'
import type { Approval, Exile, ForcedFailover } from '../../domain/failover.ts'
import { showKey } from '../../domain/key.ts'
import { describeBlocked, type KeyEstimate, type LossEstimate, type Sight, showBound } from '../../domain/loss.ts'
import { describeFence } from '../../engine/outside-fence.ts'
import { isOwn } from '../../engine/vantage.ts'
import { boundToType, roomMs } from '../failover/acknowledge.ts'
import type { Prepared } from '../failover/prepare.ts'
import { renderTable } from './table.ts'

const KEYS_SHOWN = 8

/** To be read aloud: who sees the region, what is known, what is not, what will be lost, what to type. */
export function preparedText(prepared: Prepared): string {
  const { pair, vantage, estimate, settings, fence, lease } = prepared
  const { source, target } = pair
  return [
    `${source} is dark: nobody has reached its database for ${formatMs(settings.policy.darkAfterMs)} or more`,
    renderTable(
      ['  seen from', 'what', 'last contact'],
      vantage.sights.map(s => [`  ${s.vantage}`, s.what, contactText(s)]),
    ),
    ...vantage.own.map(text => `  ${text}`),
    '',
    `${source} -> ${target}: ${movingText(estimate)}`,
    `known      ${knownText(estimate)}`,
    `not known  ${unknownText(estimate)}`,
    `stands on  ${observationText(estimate)}`,
    `fence      ${describeFence(fence, settings, lease, source)}`,
    '',
    ...keyLines(estimate),
    ...blockedLines(estimate),
    ...(prepared.plan === null
      ? []
      : [
          '',
          `plan ${prepared.plan.id}; to own that loss: ${prepared.command} --rpo-ack ${boundToType(estimate, fence, 'later')}${roomText(prepared)}`,
        ]),
  ].join('\n')
}

function roomText({ fence, estimate }: Prepared): string {
  const room = estimate.totals.unknown.ms === null ? 0 : roomMs(fence, 'later')
  return room === 0 ? '' : `   (what is shown, and ${formatMs(room)} to use it)`
}

function movingText({ keys, blocked }: LossEstimate): string {
  const moving = keys.length - blocked.length
  return `${moving} of ${keys.length} keys would move${blocked.length === 0 ? '' : `, ${blocked.length} stay where they are`}`
}

function knownText({ totals, source }: LossEstimate): string {
  return totals.recoverable === 0
    ? `no write is known to stand in the Kafka of ${source} and to be missing at the target`
    : `${totals.recoverable} writes stand in the Kafka of ${source} and are missing at the target: recoverable when it returns`
}

function unknownText({ totals, source, stoppedAgeMs }: LossEstimate): string {
  const { ms, writes } = totals.unknown
  if (ms === null) return `nobody can say how much ${source} committed that nobody else has; only "any" covers that`
  const wait = stoppedAgeMs !== null && stoppedAgeMs < 0 ? `, with the ${showBound(-stoppedAgeMs)} until it is fenced` : ''
  return `up to ${showBound(ms)} of writes${wait}; at most ${writes ?? 'an unknown number of'} writes: these will be LOST or come back late`
}

function observationText({ observation, target }: LossEstimate): string {
  if (observation === null) return 'no agent has ever looked at it'
  const { observer, ageMs, unpublished, oldestUnpublishedMs, notApplied, highestPerSecond } = observation
  const applied = notApplied[target]
  return [
    `a look of ${observer}, ${showBound(ageMs)} old`,
    `${unpublished} not published${oldestUnpublishedMs === null ? '' : ` (oldest ${formatMs(oldestUnpublishedMs)})`}`,
    applied === undefined
      ? `not looked at ${target}`
      : `${applied.events} not applied at ${target}${applied.oldestMs === null ? '' : ` (oldest ${formatMs(applied.oldestMs)})`}`,
    highestPerSecond === null ? 'rate unknown' : `at most ${highestPerSecond} writes/s`,
  ].join('; ')
}

function keyLines({ keys }: LossEstimate): readonly string[] {
  const worst = [...keys].sort(worstFirst)
  const rows = worst
    .slice(0, KEYS_SHOWN)
    .map(k => [
      showKey(k.key),
      String(k.epoch),
      k.lastApplied === null ? 'nothing applied, or not asked' : `version ${k.lastApplied.version}, ${formatMs(k.lastApplied.ageMs)} ago`,
      String(k.recoverable),
      k.unknown.ms === null ? 'unknown' : `up to ${showBound(k.unknown.ms)}`,
    ])
  return [
    renderTable(['key', 'epoch', 'last applied at the target', 'recoverable', 'not known'], rows),
    ...(worst.length > KEYS_SHOWN ? [`+${worst.length - KEYS_SHOWN} more`] : []),
  ]
}

function worstFirst(a: KeyEstimate, b: KeyEstimate): number {
  return (
    b.recoverable - a.recoverable || (b.lastApplied?.ageMs ?? Infinity) - (a.lastApplied?.ageMs ?? Infinity) || (a.key < b.key ? -1 : 1)
  )
}

function blockedLines({ blocked }: LossEstimate): readonly string[] {
  if (blocked.length === 0) return []
  return [
    '',
    'blocked by policy, whatever is acknowledged:',
    ...blocked.slice(0, KEYS_SHOWN).map(b => `  ${describeBlocked(b)}`),
    ...(blocked.length > KEYS_SHOWN ? [`  +${blocked.length - KEYS_SHOWN} more`] : []),
  ]
}

function contactText(sight: Sight): string {
  const { lastContactAgeMs } = sight
  if (lastContactAgeMs === null) return isOwn(sight) ? 'no answer' : 'never'
  return lastContactAgeMs === 0 ? 'now' : `${formatMs(lastContactAgeMs)} ago`
}

export function preparedJson({ pair, vantage, estimate, fence, plan, command }: Prepared, token: string | null): unknown {
  const { keys, blocked, totals, observation, stoppedAgeMs, sha256 } = estimate
  return {
    ...{
      source: pair.source,
      target: pair.target,
      plan: plan?.id ?? null,
      fence,
      command,
      ackToken: token,
      bound: boundToType(estimate, fence, 'later'),
    },
    ...{ sights: vantage.sights, observation, stoppedAgeMs, totals, blocked, keys, estimateSha256: sha256 },
  }
}

/** Forced failovers whose source is not back, for status: on what they stood, who agreed, and what is still owed. */
export function exileLines({ exile, failovers, approvals }: ForcedStatus): readonly string[] {
  const done = exile.done.length === 0 ? 'not fenced yet' : exile.done.join(', ')
  return [
    `EXILE ${exile.region} since ${exile.since}: reconcile pending (${done}; ${exile.undecided} undecided)`,
    ...failovers.flatMap(f => {
      const { kind, boundMs, by } = f.acknowledgement
      return [
        `  forced by run ${f.runId} at ${f.at} by ${f.by}: ${f.keys.length} keys ${f.source} -> ${f.target}`,
        `    fence ${f.fence}: ${f.fenceObserved}`,
        `    acknowledged ${boundMs === 'any' ? 'any loss' : `up to ${showBound(boundMs)}`} (${kind}) by ${by}`,
        ...approvalLines(approvals.filter(a => a.runId === f.runId)),
      ]
    }),
    `  next: homeregion rejoin ${exile.region}   (when it is back)`,
  ]
}

export function approvalLines(approvals: readonly Approval[]): readonly string[] {
  return approvals.map(
    a => `    ${a.breakGlass ? 'BROKE THE GLASS' : a.verdict}: ${a.approver} at ${a.at}${a.reason === '' ? '' : `: ${a.reason}`}`,
  )
}

/** One exile, the failovers that led to it, and who spoke for or against them. */
export type ForcedStatus = { readonly exile: Exile; readonly failovers: readonly ForcedFailover[]; readonly approvals: readonly Approval[] }
