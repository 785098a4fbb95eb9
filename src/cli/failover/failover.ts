import { parseDuration, showDuration } from '../../domain/duration.ts'
import { HomeregionError } from '../../domain/errors.ts'
import { showKey } from '../../domain/key.ts'
import type { Acknowledgement } from '../../domain/loss.ts'
import { acknowledgementProblem, describeBlocked } from '../../domain/loss.ts'
import { forcedSettings, patienceMs } from '../../engine/forced-move.ts'
import { startForced } from '../../engine/forced-run.ts'
import type { CliContext, Printer, World } from '../context.ts'
import { isInteractive, requireAnswers } from '../operator.ts'
import { printable } from '../render/error.ts'
import { preparedJson, preparedText } from '../render/failover.ts'
import { counted } from '../render/words.ts'
import { shellLines } from '../render/wrapped.ts'
import { answersOf } from '../run-command.ts'
import { transfer } from '../transfer.ts'
import { acknowledge, boundToType, parseAck } from './acknowledge.ts'
import { planAsAsked, planCommand, wholeCommand } from './command.ts'
import { driveForced } from './drive.ts'
import { type FailoverFlags, type ForcedFlags, reasonOf } from './flags.ts'
import { attested, estimateOf, type Prepared, prepare, quietEngine } from './prepare.ts'
import { pairOf, recordsOf, usage } from './select.ts'
import { requireAnswer } from './who-answers.ts'

export async function failover(context: CliContext, keys: readonly string[], flags: FailoverFlags): Promise<void> {
  if (flags.force !== true) return await graceful(context, keys, flags)
  context.format('json')
  const ack = parseAck(flags.rpoAck, planAsAsked(keys, flags))
  const world = await context.connect()
  const first = await prepare(context, world, keys, flags)
  requirePair(context, first)
  context.err.line(`${printable(preparedText(first, columnsOf(context.err)))}\n`)
  const { prepared, plan } = movable(await withAttestation(context, world, first))
  if (flags.plan !== undefined && flags.plan !== plan.id)
    throw new HomeregionError('plan-stale', {
      fact: `plan ${flags.plan} is stale: ownership, policy or the runbook has changed, the plan is now ${plan.id}`,
      state: 'Nothing was changed.',
      next: planCommand(prepared.pair, keys, flags),
    })
  const answers = answersOf(flags)
  const { estimate, command } = prepared
  const acknowledgement = await acknowledge(context, world.controlPlane, ack, {
    ...{ estimate, fence: prepared.fence, planId: plan.id, command, runId: null, plan: planCommand(prepared.pair, keys, flags) },
  })
  requireCovered(acknowledgement, prepared)
  requireAnswers(context, plan.pinned.runbook.steps, plan, answers)
  const { settings, fence, attestation } = prepared
  await driveForced(context, answers, async operator => {
    const start = { plan, estimate, fence, acknowledgement, attestation, reason: reasonOf(flags), observeMs: flags.observe ?? null }
    return await startForced({ engine: world.engine(operator), operator, settings }, start)
  })
}

/** The estimate, and a token that owns exactly that loss of exactly these keys in exactly this plan. */
export async function planFailover(context: CliContext, keys: readonly string[], flags: ForcedFlags): Promise<void> {
  const format = context.format('json')
  const world = await context.connect()
  const prepared = await prepare(context, world, keys, flags)
  const { plan, estimate } = prepared
  const bound = parseDuration(boundToType(estimate, prepared.fence, 'later')) ?? 'any'
  const token =
    plan === null
      ? null
      : await world.controlPlane.issueAckToken({
          ...{ planId: plan.id, keysSha256: estimate.keysSha256, estimateSha256: estimate.sha256, boundMs: bound },
        })
  if (format === 'json') return context.out.line(JSON.stringify(preparedJson(prepared, token)))
  context.out.line(printable(preparedText(prepared, columnsOf(context.out))))
  context.out.line((plan === null ? nothingMoves(prepared).text.state : null) ?? 'Nothing was changed.')
  context.out.line(printable(nextText(prepared, columnsOf(context.out))))
  if (token !== null)
    context.out.line(
      `or, once, by a token for ${typeof bound === 'string' ? 'any loss' : `up to ${showDuration(bound)}`}:\n       --rpo-ack ${token}`,
    )
}

function nextText(prepared: Prepared, columns: number): string {
  const command = prepared.plan === null ? (nothingMoves(prepared).text.next ?? '') : wholeCommand(prepared)
  return `next:  ${shellLines(command, 'next:  '.length, columns)}`
}

/** Every key of the region, one planned move after the other: it loses nothing. */
async function graceful(context: CliContext, keys: readonly string[], flags: FailoverFlags): Promise<void> {
  if (flags.rpoAck !== undefined || flags.fence !== undefined || flags.attest !== undefined)
    throw usage('--rpo-ack, --fence and --attest are for a forced failover only', 'homeregion failover --force')
  const world = await context.connect()
  const { config } = await context.settings()
  if (flags.from === undefined && flags.to === undefined)
    throw usage('which region is left is not said', 'homeregion failover --from R --to R')
  const engine = quietEngine(context, world)
  const { source, target } = await pairOf(engine, config, flags)
  const records = await recordsOf(world.controlPlane, source, keys, flags.keysFile)
  if (records.length === 0) return context.out.line(`Nothing to do: no key is at home in ${source}.`)
  await requireAnswer(engine, { source, target }, patienceMs(forcedSettings(config, source)))
  // Its keys are named by now.
  const { keysFile, ...rest } = flags
  if (keysFile !== undefined) context.err.line(`${counted(records.length, 'key')} of ${keysFile}`)
  await transfer(
    context,
    records.map(r => r.key),
    { ...rest, to: target, runbook: flags.runbook ?? 'transfer', ...reasonFlag(flags) },
  )
}

function columnsOf({ isTerminal, columns }: Printer): number {
  return isTerminal ? columns : Number.POSITIVE_INFINITY
}

function reasonFlag(flags: FailoverFlags): { readonly reason?: string } {
  const reason = reasonOf(flags)
  return reason === null ? {} : { reason }
}

/** What was left out and found by looking is for a person to confirm; flags cannot agree to what they do not name. */
function requirePair(context: CliContext, prepared: Prepared): void {
  const { pair } = prepared
  if (!pair.found || isInteractive(context)) return
  throw new HomeregionError('not-a-terminal', {
    fact: `--from and --to are not both given; ${pair.source} is dark and would be left for ${pair.target}, and there is no terminal to confirm that at`,
    state: 'Nothing was changed.',
    next: wholeCommand(prepared),
  })
}

/** A fence by a person's word needs the word; with it the estimate grows no more, so it is read again. */
async function withAttestation(context: CliContext, world: World, prepared: Prepared): Promise<Prepared> {
  if (prepared.fence !== 'source-attested' || prepared.attestation !== null || prepared.plan === null) return prepared
  const { source } = prepared.pair
  if (!isInteractive(context))
    throw new HomeregionError('not-a-terminal', {
      fact: `${source} has no lease or external fence that holds, so a person has to say, with a reason, that it can no longer write`,
      state: 'Nothing was changed.',
      next: wholeCommand(prepared),
    })
  const { input } = await import('../prompts.ts')
  const message = `Why can ${source} no longer write? (your word, on record; a second person has to agree)`
  const reason = await input({ message }, { signal: AbortSignal.timeout(10 * 60_000), output: process.stderr }).catch(() => '')
  const engine = quietEngine(context, world)
  const attestation = attested(engine, world, reason)
  if (attestation === null)
    throw new HomeregionError('declined', {
      fact: `nobody said that ${source} can no longer write`,
      state: 'Nothing was changed.',
      next: wholeCommand(prepared),
    })
  const estimate = await estimateOf(engine, { ...prepared, attestation, records: prepared.estimate.keys })
  context.err.line(`Your word is taken: from now on nothing more is counted as lost.`)
  return { ...prepared, attestation, estimate }
}

function movable(prepared: Prepared): { readonly prepared: Prepared; readonly plan: NonNullable<Prepared['plan']> } {
  const { plan } = prepared
  if (plan !== null && plan.moves.length > 0) return { prepared, plan }
  throw nothingMoves(prepared)
}

/** By the policy, or because there is nothing; what has to be written into the policy is a decision, so the rule is named and not proposed. */
function nothingMoves({ estimate, pair, settings }: Prepared): HomeregionError {
  const [only] = estimate.keys
  if (only === undefined)
    return new HomeregionError('unknown-key', {
      fact: `no key is at home in ${pair.source}`,
      state: 'Nothing was changed.',
      next: 'homeregion key list',
    })
  const none = settings.policy.loss.length === 0
  const which = estimate.keys.length === 1 ? showKey(only.key) : `all ${estimate.keys.length} keys`
  const why = none ? 'policy.loss has no rule' : estimate.blocked.slice(0, 3).map(describeBlocked).join('; ')
  return new HomeregionError('loss-forbidden', {
    fact: `the policy keeps ${which} in ${pair.source}: ${why}`,
    state: `Nothing was changed. What may be lost is said by a rule in policy.loss: { keys: PATTERN, rpo: 30s } (docs/FAILOVER.md).`,
    next: none ? `${planCommand(pair)}   (once there is a rule)` : 'homeregion config show   (policy.loss: the first match counts)',
  })
}

/** Before the run is opened: what is too small now will not be enough later. */
function requireCovered(acknowledgement: Acknowledgement, prepared: Prepared): void {
  const problem = acknowledgementProblem(acknowledgement, prepared.estimate)
  if (problem === null) return
  throw new HomeregionError('loss-not-acknowledged', {
    fact: problem,
    state: 'Nothing was changed.',
    next: wholeCommand(prepared),
  })
}
