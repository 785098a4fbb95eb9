import { loadRunbook } from '../../adapters/files/runbook-file.ts'
import type { ApprovalPolicy } from '../../domain/approval.ts'
import type { OutsideFence } from '../../domain/checks.ts'
import { HomeregionError, isHomeregionError } from '../../domain/errors.ts'
import type { Observation } from '../../domain/evidence.ts'
import type { LeaseState } from '../../domain/failover.ts'
import { OPEN_STATES, type Run } from '../../domain/journal.ts'
import { type LossEstimate, rpoOf } from '../../domain/loss.ts'
import type { Plan } from '../../domain/plan.ts'
import { computePlan } from '../../domain/planning.ts'
import type { Engine } from '../../engine/context.ts'
import { type Attestation, type ForcedSettings, forcedSettings, patienceMs } from '../../engine/forced-move.ts'
import { gatherLoss, type LossQuestion, readApplied } from '../../engine/gather-loss.ts'
import { chooseFence, stoppedAgeMs } from '../../engine/outside-fence.ts'
import { regionsAhead } from '../../engine/regions-ahead.ts'
import { lookAtRegion, type Vantage } from '../../engine/vantage.ts'
import type { CliContext, World } from '../context.ts'
import { requireOneLine } from '../one-line.ts'
import { createOperator, NO_ANSWERS, UNWATCHED } from '../operator.ts'
import { forcedCommand } from './command.ts'
import type { ForcedFlags } from './flags.ts'
import { type Pair, pairOf, recordsOf } from './select.ts'
import { requireNoExile, sourceAnswers } from './who-answers.ts'

/** Everything that is known before anybody is asked anything. Nothing was changed for it. */
export type Prepared = {
  readonly pair: Pair
  readonly vantage: Vantage
  readonly settings: ForcedSettings
  readonly fence: OutsideFence
  readonly lease: LeaseState | undefined
  /** In force in the control plane; `settings` has what the file at hand says. */
  readonly approvals: ApprovalPolicy
  /** Forced failovers that are under way and have some of these keys too. */
  readonly rivals: readonly Rival[]
  readonly attestation: Attestation | null
  readonly estimate: LossEstimate
  /** null: the policy lets none of the keys move. */
  readonly plan: Plan | null
  /** Whole, but for `--rpo-ack`. */
  readonly command: string
}

/** @throws `region-exiled`, `source-answers`, `unknown-key`, `control-plane-unreachable` with what can be done without it */
export async function prepare(context: CliContext, world: World, keys: readonly string[], flags: ForcedFlags): Promise<Prepared> {
  const { config } = await context.settings()
  const engine = quietEngine(context, world)
  try {
    const pair = await pairOf(engine, config, flags)
    const { source, target } = pair
    await requireNoExile(world.controlPlane, target)
    const settings = forcedSettings(config, source)
    // Begun at once: a dark region is waited for as long as there is patience, and many keys are read in that time.
    const records = recordsOf(world.controlPlane, source, keys, flags.keysFile)
    const ahead = records.then(
      async read =>
        await regionsAhead(engine, {
          ...{ target, others: settings.others, patienceMs: patienceMs(settings) },
          // Those that stay whatever may be lost are not what this failover is about.
          records: read.filter(r => rpoOf(r.key, settings.policy.loss) !== 'never'),
        }),
    )
    const applied = records.then(async read => await readApplied(engine, target, read.map(keyOf), patienceMs(settings)))
    // Whoever is waited for first says what is wrong.
    for (const begun of [records, applied, ahead]) begun.catch(() => undefined)
    const vantage = pair.vantage ?? (await lookAtRegion(engine, source, settings.policy.darkAfterMs, patienceMs(settings)))
    if (vantage.contact !== null)
      throw await sourceAnswers(engine, pair, vantage, { darkAfterMs: settings.policy.darkAfterMs, patienceMs: patienceMs(settings) })
    const pinned = loadRunbook(flags.runbook ?? 'failover', context.cwd)
    if (pinned.runbook.intent !== 'failover')
      throw new HomeregionError('usage', {
        fact: `runbook ${pinned.runbook.name} has the intent ${pinned.runbook.intent}: it may lose nothing, and cannot be forced`,
        state: 'Nothing was changed.',
        next: 'homeregion runbook show failover',
      })
    const [read, leases, approvals, open] = await Promise.all([
      records,
      world.controlPlane.leaseStates(),
      world.controlPlane.approvalPolicy(null),
      world.controlPlane.runs({ states: OPEN_STATES, limit: RUNS_READ }),
    ])
    const lease = leases.find(l => l.region === source)
    const asked = flags.fence ?? (flags.attest === undefined ? null : 'attest')
    const fence = chooseFence(settings, lease, asked, source)
    const attestation = attested(engine, world, flags.attest)
    requireNoneAhead(await ahead)
    const estimate = await estimateOf(engine, { pair, settings, vantage, fence, attestation, applied, records: read })
    const staying = new Set(estimate.blocked.map(b => b.key))
    const moving = read.filter(r => !staying.has(r.key))
    const plan =
      moving.length === 0
        ? null
        : computePlan({ pinned, keys: moving.map(keyOf), target, records: moving, config, atHome: new Map(), outsideFence: fence })
    const command = forcedCommand(pair, keys, flags, fence)
    const rivals = rivalsOf(open, moving.map(keyOf))
    return { pair, vantage, settings, fence, lease, approvals, rivals, attestation, estimate, plan, command }
  } catch (error) {
    throw isHomeregionError(error, 'control-plane-unreachable') ? withoutControlPlane(error, flags.from) : error
  }
}

/** Before anything is estimated: what the control plane has forgotten, it would count wrong as well. */
function requireNoneAhead(seen: Observation): void {
  if (seen.verdict !== 'fail') return
  throw new HomeregionError('check-refused', {
    fact: seen.observed,
    state:
      'Nothing was changed. It lost what was decided there (taken over by a replica that was behind, or restored): its keys may be written elsewhere.',
    next: 'homeregion doctor -o json   (names all such keys; the others can be moved by name: docs/FAILOVER.md)',
  })
}

// Open at once; as many forced runs over the same keys are nobody's night.
const RUNS_READ = 500

export type Rival = { readonly run: Run; readonly keys: number }

/** Each may take the keys, the one whose commit is first does, and it ends the others: nobody should find that out afterwards. */
export function rivalsOf(open: readonly Run[], keys: readonly string[]): readonly Rival[] {
  const wanted = new Set(keys)
  return open.flatMap(run => {
    const shared = run.intent === 'failover' ? run.moves.filter(m => m.outcome === null && wanted.has(m.key)).length : 0
    return shared === 0 ? [] : [{ run, keys: shared }]
  })
}

/** Said now: from here on the estimate grows no more, by this word. */
export function attested(engine: Engine, world: World, reason: string | undefined): Attestation | null {
  const text = reason?.trim() ?? ''
  requireOneLine('attest', text)
  return text === '' ? null : { reason: text, by: `${world.holder.user}@${world.holder.host}`, saidAtMs: engine.clock.monotonicMs() }
}

export async function estimateOf(
  engine: Engine,
  about: {
    readonly pair: Pick<Pair, 'source' | 'target'>
    readonly settings: ForcedSettings
    readonly vantage: Vantage
    readonly fence: OutsideFence
    readonly attestation: Attestation | null
    readonly records: readonly { readonly key: string; readonly epoch: number }[]
    readonly applied?: LossQuestion['applied']
  },
): Promise<LossEstimate> {
  const { pair, settings, vantage, fence, attestation } = about
  const { source, target } = pair
  return await gatherLoss(engine, {
    ...{ source, target, loss: settings.policy.loss, sights: vantage.sights, patienceMs: patienceMs(settings) },
    keys: about.records.map(({ key, epoch }) => ({ key, epoch })),
    ...(about.applied === undefined ? {} : { applied: about.applied }),
    stoppedAgeMs: await stoppedAgeMs(engine, { source, fence, settings, attestation, heldAtMs: null }),
  })
}

function keyOf({ key }: { readonly key: string }): string {
  return key
}

export function quietEngine(context: CliContext, world: World): Engine {
  return world.engine(createOperator(context, NO_ANSWERS, () => undefined, UNWATCHED))
}

/** Perhaps it stands in the dark region itself. Said at once, with what can be done without it. */
function withoutControlPlane(error: HomeregionError, region: string | undefined): HomeregionError {
  const name = region ?? 'REGION'
  return new HomeregionError(
    'control-plane-unreachable',
    {
      fact: `${error.text.fact}; nobody can say who owns what, so nothing can be handed over`,
      state: 'Nothing was changed. If the control plane stands in the dark region, its replica elsewhere has to take over first.',
      next: `homeregion fence apply ${name} --reason TEXT (an emergency fence needs no control plane); stop its former primary, promote its replica, export HOMEREGION_CONTROL_PLANE_URL=URL, and the same command`,
    },
    { cause: error },
  )
}
