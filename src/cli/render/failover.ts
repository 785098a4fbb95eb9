import { type Approval, namesOfApprovers, showVoice } from '../../domain/approval.ts'
import { formatMs } from '../../domain/duration.ts'
import { approvalNeeded } from '../../domain/forced-interlock.ts'
import { showKey } from '../../domain/key.ts'
import { describeBlocked, type KeyEstimate, type LossEstimate, type Sight, showBound } from '../../domain/loss.ts'
import { describeFence } from '../../engine/outside-fence.ts'
import { isOwn } from '../../engine/vantage.ts'
import { boundToType, roomMs } from '../failover/acknowledge.ts'
import { wholeCommand } from '../failover/command.ts'
import type { Prepared } from '../failover/prepare.ts'
import { onOneLine } from './error.ts'
import { renderTable } from './table.ts'
import { counted } from './words.ts'
import { wrapped } from './wrapped.ts'

const KEYS_SHOWN = 8

/**
 * To be read aloud: who sees the region, what is known, what is not, what will be lost, what comes then, what to type. At a terminal no word is
 * broken; elsewhere each line stays one.
 */
export function preparedText(prepared: Prepared, columns = Number.POSITIVE_INFINITY): string {
  const { pair, vantage, estimate, settings, fence, lease, plan } = prepared
  const { source, target } = pair
  return [
    `${source} is dark: nobody has reached its database for ${formatMs(settings.policy.darkAfterMs)} or more`,
    renderTable(
      ['  seen from', 'what', 'last contact'],
      vantage.sights.map(s => [`  ${s.vantage}`, s.what, contactText(s)]),
    ),
    ...vantage.own.map(text => wrapped(`  ${text}`, 4, columns)),
    '',
    ...rivalLines(prepared, columns),
    `${source} -> ${target}: ${movingText(estimate)}`,
    ...labelled(columns, [
      ['known', knownText(estimate)],
      ['not known', unknownText(estimate)],
      ['stands on', observationText(estimate)],
      ['fence', describeFence(fence, settings, lease, source)],
      ...(plan === null ? [] : [...agreeing(prepared, plan.moves.length), ['then', thenText(prepared)] as const]),
    ]),
    '',
    ...keyLines(estimate),
    ...blockedLines(estimate),
    ...(plan === null ? [] : ['', `plan ${plan.id}; to own that loss: ${boundToType(estimate, fence, 'later')}${roomText(prepared)}`]),
  ].join('\n')
}

function roomText({ fence, estimate }: Prepared): string {
  const room = estimate.totals.unknown.ms === null ? 0 : roomMs(fence, 'later')
  return room === 0 ? '' : ` (what is shown, and ${formatMs(room)} to use it)`
}

function agreeing({ fence, settings, approvals, pair }: Prepared, keys: number): readonly (readonly [string, string])[] {
  const { approvers, needed, aboveKeys } = settings.policy.approvals
  const sameNames = [...approvers].sort().join() === [...approvals.approvers].sort().join()
  const same = sameNames && needed === approvals.needed && aboveKeys === approvals.aboveKeys
  const row = approvalNeeded(fence, keys, approvals)
    ? ([
        ['agreed by', `${approvals.needed} of: ${namesOfApprovers(approvals)}; by homeregion approve RUN, and not by whoever begins it`],
      ] as const)
    : []
  if (same || (row.length === 0 && !approvalNeeded(fence, keys, settings.policy.approvals))) return row
  const [inForce, here] = [approvals, settings.policy.approvals].map(
    p => `${p.needed} of ${p.approvers.join(', ') || 'nobody'} above ${p.aboveKeys} keys`,
  )
  return [
    ...row,
    ['in force', `since ${approvals.since}: ${inForce}. Your file says ${here}: homeregion init --without ${pair.source} would change it`],
  ]
}

function approvalsJson({ fence, approvals, plan, rivals }: Prepared): unknown {
  const { approvers, needed, aboveKeys } = approvals
  const asked = plan !== null && approvalNeeded(fence, plan.moves.length, approvals)
  return { asked, needed, approvers, aboveKeys, sameKeys: rivals.map(r => r.run.id) }
}

/** Two at once over the same keys are allowed, since the first may be stuck where nobody can reach it; never unsaid. */
function rivalLines({ rivals }: Prepared, columns: number): readonly string[] {
  return rivals.flatMap(({ run, keys }) => [
    wrapped(
      `ATTENTION  run ${run.id}, begun by ${run.startedBy} at ${run.startedAt}, is failing over ${keys} of these keys too: whichever commits first takes them, and the other ends`,
      LABEL,
      columns,
    ),
    `           homeregion resume ${run.id}   or   homeregion abort ${run.id}`,
  ])
}

/** Nobody should wonder at three in the morning whether it has begun already. */
function thenText({ pair }: Prepared): string {
  return `nothing is changed yet, nor by walking away. Once it is confirmed: the fence, a last look, one commit; after that there is only forward, and ${pair.source} owns nothing until homeregion rejoin ${pair.source}`
}

function labelled(columns: number, rows: readonly (readonly [string, string])[]): readonly string[] {
  return rows.map(([label, text]) => wrapped(`${label.padEnd(LABEL)}${text}`, LABEL, columns))
}

const LABEL = 11

function movingText({ keys, blocked }: LossEstimate): string {
  const moving = keys.length - blocked.length
  const staying = blocked.length === 1 ? '1 stays where it is' : `${blocked.length} stay where they are`
  return `${moving} of ${counted(keys.length, 'key')} would move${blocked.length === 0 ? '' : `, ${staying}`}`
}

function knownText({ totals, source, sights }: LossEstimate): string {
  if (totals.recoverable === null) {
    const silent = sights.some(s => s.what === 'kafka' && s.lastContactAgeMs === 0) ? 'was not read in time' : 'does not answer'
    return `nothing: the Kafka of ${source} ${silent}, so nobody can count what stands there; it is part of what is not known`
  }
  return totals.recoverable === 0
    ? `no write stands in the Kafka of ${source} and is missing at the target`
    : `${counted(totals.recoverable, 'write')} in the Kafka of ${source}, missing at the target: recoverable when it returns`
}

function unknownText({ totals, source, stoppedAgeMs }: LossEstimate): string {
  const { ms, writes } = totals.unknown
  if (ms === null) return `nobody can say how much ${source} committed that nobody else has; only "any" covers that`
  const wait = stoppedAgeMs !== null && stoppedAgeMs < 0 ? `, with the ${showBound(-stoppedAgeMs)} until it is fenced` : ''
  return `up to ${showBound(ms)} of writes${wait}; at most ${writes === null ? 'an unknown number of writes' : counted(writes, 'write')}: these will be LOST or come back late`
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
      String(k.recoverable ?? 'unknown'),
      k.unknown.ms === null ? 'unknown' : `up to ${showBound(k.unknown.ms)}`,
    ])
  return [
    renderTable(['key', 'epoch', 'last applied at the target', 'recoverable', 'not known'], rows),
    ...(worst.length > KEYS_SHOWN ? [`+${worst.length - KEYS_SHOWN} more`] : []),
  ]
}

function worstFirst(a: KeyEstimate, b: KeyEstimate): number {
  return (
    (b.recoverable ?? 0) - (a.recoverable ?? 0) ||
    (b.lastApplied?.ageMs ?? Infinity) - (a.lastApplied?.ageMs ?? Infinity) ||
    (a.key < b.key ? -1 : 1)
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

export function preparedJson(prepared: Prepared, token: string | null): unknown {
  const { pair, vantage, estimate, fence, plan } = prepared
  const { keys, blocked, totals, observation, stoppedAgeMs, sha256 } = estimate
  return {
    ...{
      source: pair.source,
      target: pair.target,
      plan: plan?.id ?? null,
      fence,
      command: plan === null ? null : wholeCommand(prepared),
      ackToken: token,
      bound: boundToType(estimate, fence, 'later'),
      approvals: approvalsJson(prepared),
    },
    ...{ sights: vantage.sights, observation, stoppedAgeMs, totals, blocked, keys, estimateSha256: sha256 },
  }
}

export function approvalLines(approvals: readonly Approval[]): readonly string[] {
  return approvals.map(
    a => `    ${a.breakGlass ? '' : `${a.verdict}: `}${showVoice(a)}${a.reason.trim() === '' ? '' : `: ${onOneLine(a.reason)}`}`,
  )
}
