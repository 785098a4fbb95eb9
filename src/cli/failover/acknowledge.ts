import type { OutsideFence } from '../../domain/checks.ts'
import { formatMs, parseDuration, showDuration } from '../../domain/duration.ts'
import { HomeregionError } from '../../domain/errors.ts'
import type { AckToken } from '../../domain/failover.ts'
import { type Acknowledgement, type LossEstimate, showBound } from '../../domain/loss.ts'
import type { ControlPlane } from '../../domain/ports.ts'
import type { CliContext } from '../context.ts'
import { isInteractive } from '../operator.ts'
import { counted } from '../render/words.ts'
import { usage } from './select.ts'

/** What `--rpo-ack` was given, before it is held against anything. `typed` is asked for once the bound was shown. */
export type AckFlag =
  | { readonly kind: 'typed' }
  | { readonly kind: 'bound'; readonly boundMs: number }
  | { readonly kind: 'any' }
  | { readonly kind: 'token'; readonly token: string }

/** @throws `usage` for a bare number and for any unit but ms, s, m and h: nobody can tell what was meant; `plan` shows what would be */
export function parseAck(given: string | true | undefined, plan: string): AckFlag | null {
  if (given === undefined) return null
  if (given === true) return { kind: 'typed' }
  if (given === 'any') return { kind: 'any' }
  if (/^ack-/i.test(given)) return { kind: 'token', token: given }
  const boundMs = parseDuration(given)
  if (boundMs !== null) return { kind: 'bound', boundMs }
  throw usage(
    `--rpo-ack ${JSON.stringify(given)} is no bound: a whole number with its unit (91s, 5m), any, or the token of plan failover`,
    plan,
  )
}

/** What a command takes to be read, typed and started; while no fence holds yet, the loss grows with it. */
export const ROOM_MS = 60_000

/** `now`: typed into the process that shows it. `later`: given to another one, which takes its own look. */
export type When = 'now' | 'later'

/** A lease ends when it ends, whoever types; a person's word counts from when it is said; an external fence from when it holds. */
export function roomMs(fence: OutsideFence, when: When): number {
  if (fence === 'lease-over') return 0
  return fence === 'source-attested' && when === 'now' ? 0 : ROOM_MS
}

/** The bound that covers the estimate, as it is typed: whole seconds, rounded up, with room to type it where that costs more. */
export function boundToType(estimate: LossEstimate, fence: OutsideFence, when: When): string {
  const { ms } = estimate.totals.unknown
  return ms === null ? 'any' : showDuration(Math.ceil((ms + roomMs(fence, when)) / 1000) * 1000)
}

const ANSWER_MS = 10 * 60_000

/**
 * Somebody's own word for the loss that was shown. @throws `loss-not-acknowledged` (missing, bare off a terminal, typed wrongly),
 * `ack-token-refused` (unknown, used, over, of another plan)
 */
export async function acknowledge(
  context: CliContext,
  controlPlane: ControlPlane,
  flag: AckFlag | null,
  about: {
    readonly estimate: LossEstimate
    readonly fence: OutsideFence
    readonly planId: string
    readonly command: string
    /** What shows the loss again, and gives another token. */
    readonly plan: string
    /** Null: it is not begun. */
    readonly runId: string | null
    /** Somebody's word is on record: nothing is added until it is typed. */
    readonly attested?: boolean
  },
): Promise<Acknowledgement> {
  const bound = boundToType(about.estimate, about.fence, about.attested === true ? 'now' : 'later')
  if (flag === null || (flag.kind === 'typed' && !isInteractive(context)))
    throw notOwned(
      flag === null ? 'nobody has acknowledged what may be lost' : 'a bare --rpo-ack is typed at a terminal, and there is none',
      bound,
      about,
    )
  if (flag.kind === 'typed') {
    // Once more, and last: what was shown has scrolled off a small screen by now.
    context.err.line(inShort(about.estimate, about.fence))
    return await typed(boundToType(about.estimate, about.fence, 'now'), about)
  }
  if (flag.kind === 'token') return await held(controlPlane, flag.token, about)
  return flag
}

const SHORT: Readonly<Record<OutsideFence, string>> = {
  'lease-over': 'its lease',
  'external-fence-holds': 'from outside',
  'source-attested': 'your word',
}

/** How many, how much and on what, on one line. */
export function inShort({ keys, blocked, source, target, totals }: LossEstimate, fence: OutsideFence): string {
  const { ms } = totals.unknown
  const lost = ms === null ? 'nobody knows how much is lost' : `up to ${showBound(ms)} of writes are lost`
  return `${counted(keys.length - blocked.length, 'key')} ${source} -> ${target}; ${lost}; fence: ${SHORT[fence]}`
}

async function typed(bound: string, about: { readonly command: string }): Promise<Acknowledgement> {
  const { input } = await import('../prompts.ts')
  const options = { signal: AbortSignal.timeout(ANSWER_MS), output: process.stderr }
  const answer = await input(
    { message: `Type ${bound} to own ${bound === 'any' ? 'whatever is lost' : `the loss of up to ${bound} of writes`}:` },
    options,
  ).catch(() => null)
  // Ctrl-C, the end of the input, or nobody for too long.
  if (answer === null) throw notOwned('nobody typed what may be lost', bound, about)
  if (answer.trim() !== bound) throw notOwned(`${JSON.stringify(answer)} is not ${bound}`, bound, about)
  return bound === 'any' ? { kind: 'any' } : { kind: 'typed', boundMs: parseDuration(bound) ?? 0 }
}

/** The run uses it once it is open; until then it is looked at only. One that the run has already is good for as long as the run takes. */
async function held(
  controlPlane: ControlPlane,
  token: string,
  { planId, runId, plan }: { readonly planId: string; readonly runId: string | null; readonly plan: string },
): Promise<Acknowledgement> {
  const found = await controlPlane.ackToken(token)
  const refuse = (fact: string, next = plan) =>
    new HomeregionError('ack-token-refused', { fact: `the acknowledgement token ${fact}`, state: 'Nothing was changed.', next })
  if (found === null) throw refuse('was never issued by this control plane')
  if (found.usedBy === null || found.usedBy !== runId) {
    const used = found.usedBy
    if (used !== null) throw refuse(`was used already, by run ${used}`, `homeregion run show ${used}   (or ${plan} for another token)`)
    if (!found.mine) throw refuse(`was given to ${found.issuedTo}, and is of use to no other login`)
    if (found.leftMs <= 0) throw refuse(`is over for ${formatMs(-found.leftMs)}`)
  }
  if (found.planId !== planId) throw refuse(`is for plan ${found.planId}, this is plan ${planId}`)
  return tokenAcknowledgement(found)
}

export function tokenAcknowledgement({ hash, boundMs, keysSha256 }: AckToken): Acknowledgement {
  return { kind: 'token', hash, boundMs, keysSha256 }
}

function notOwned(fact: string, bound: string, { command }: { readonly command: string }): HomeregionError {
  return new HomeregionError('loss-not-acknowledged', { fact, state: 'Nothing was changed.', next: `${command} --rpo-ack ${bound}` })
}
