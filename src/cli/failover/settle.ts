import { parsePinned } from '../../adapters/files/runbook-file.ts'
import { OUTSIDE_FENCES, type OutsideFence } from '../../domain/checks.ts'
import { HomeregionError } from '../../domain/errors.ts'
import type { Evidence, Json } from '../../domain/evidence.ts'
import type { AckToken } from '../../domain/failover.ts'
import type { Run } from '../../domain/journal.ts'
import type { Acknowledgement } from '../../domain/loss.ts'
import { type Attestation, type ForcedMove, forcedSettings } from '../../engine/forced-move.ts'
import type { ForcedResume } from '../../engine/forced-opening.ts'
import { abortForced, resumeForced } from '../../engine/forced-run.ts'
import { chooseFence } from '../../engine/outside-fence.ts'
import { lookAtRegion } from '../../engine/vantage.ts'
import type { CliContext, World } from '../context.ts'
import { answersOf, type ResumeFlags } from '../run-command.ts'
import { acknowledge, parseAck, tokenAcknowledgement } from './acknowledge.ts'
import { planCommand } from './command.ts'
import { driveForced } from './drive.ts'
import { attested, estimateOf, quietEngine } from './prepare.ts'

/** As many keys as a command is still read with. */
const NAMED = 5

type Recorded = readonly (Evidence & { readonly recordedAt: string })[]

/** Goes on with a forced failover: with what is on record of it, and what is said again. */
export async function resumeFailover(context: CliContext, world: World, run: Run, flags: ResumeFlags): Promise<void> {
  const { resume, settings } = await recall(context, world, run, flags, true)
  await driveForced(context, answersOf(flags), async operator => {
    const options = { ...resume, observeMs: flags.observe ?? null, takeOver: flags.takeOver === true }
    return await resumeForced({ engine: world.engine(operator), operator, settings }, options)
  })
}

export async function abortFailover(context: CliContext, world: World, run: Run, takeOver: boolean): Promise<void> {
  const { resume, settings } = await recall(context, world, run, {}, false)
  await driveForced(context, answersOf({}), async operator => {
    return await abortForced({ engine: world.engine(operator), operator, settings }, { ...resume, takeOver })
  })
}

async function recall(
  context: CliContext,
  world: World,
  run: Run,
  flags: ResumeFlags,
  toGoOn: boolean,
): Promise<{ readonly resume: ForcedResume; readonly settings: ForcedMove['settings'] }> {
  const { config } = await context.settings()
  const engine = quietEngine(context, world)
  const first = run.moves[0]
  if (first === undefined) throw new RangeError(`run ${run.id} has no key`)
  const { source, target } = first
  const settings = forcedSettings(config, source)
  const [recorded, leases, forced] = await Promise.all([
    world.controlPlane.evidence(run.id),
    world.controlPlane.leaseStates(),
    world.controlPlane.forcedFailovers({ runId: run.id, limit: 1 }),
  ])
  const owned = recorded.findLast(e => e.check === 'loss-acknowledged' && e.verdict === 'pass')
  const lease = leases.find(l => l.region === source)
  const withheld = lease?.withheldBy === run.id ? ('lease-over' as const) : undefined
  const fence =
    forced[0]?.fence ??
    fenceOf(owned?.facts?.['fence']) ??
    withheld ??
    chooseFence(settings, lease, flags.attest === undefined ? null : 'attest', source)
  const attestation = attested(engine, world, flags.attest) ?? recalled(engine.clock.monotonicMs(), run, recorded)
  const committed = forced.length > 0
  const needed = toGoOn && !committed
  if (needed && fence === 'source-attested' && attestation === null)
    throw new HomeregionError('not-a-terminal', {
      fact: `nobody's word that ${source} can no longer write is on record of run ${run.id}`,
      state: 'Nothing was changed.',
      next: `homeregion resume ${run.id} --attest TEXT`,
    })
  const saidAgain = flags.rpoAck !== undefined
  const token = await world.controlPlane.ackTokenOf(run.id)
  const acknowledgement =
    acknowledged(owned, token, saidAgain) ?? (needed ? await again() : ({ kind: 'bound', boundMs: 0 } satisfies Acknowledgement))

  async function again(): Promise<Acknowledgement> {
    const vantage = await lookAtRegion(engine, source, settings.policy.darkAfterMs, settings.policy.callTimeoutMs)
    const pair = { source, target, found: false }
    const estimate = await estimateOf(engine, { pair, settings, vantage, fence, attestation, records: run.moves })
    const command = `homeregion resume ${run.id}`
    // A token is for exactly these keys; many are all of the region's, as a rule.
    const plan = planCommand(pair, run.moves.length > NAMED ? [] : run.moves.map(m => m.key))
    return await acknowledge(context, world.controlPlane, parseAck(flags.rpoAck, plan), {
      ...{ estimate, fence, planId: run.planId, command, plan, runId: run.id, attested: attestation !== null },
    })
  }

  const doneSteps = new Set([
    ...(owned === undefined ? [] : [owned.step]),
    ...(await world.controlPlane.attempts(run.id)).filter(a => a.outcome === 'done').map(a => a.step),
  ])
  const runbook = parsePinned(run.runbookText, `run ${run.id}`)
  const resume: ForcedResume = { run, runbook, fence, acknowledgement, attestation, doneSteps, observeMs: null, takeOver: false }
  return { resume, settings }
}

function fenceOf(value: Json | undefined): OutsideFence | undefined {
  return OUTSIDE_FENCES.find(name => name === value)
}

/** The last word that passed its gate; a token is the run's from its first use on, also where the gate was not reached. */
function acknowledged(owned: Evidence | undefined, token: AckToken | null, saidAgain: boolean): Acknowledgement | null {
  const kind = owned?.facts?.['kind'] ?? 'token'
  const boundMs = owned?.facts?.['boundMs']
  if (saidAgain) return null
  if (kind === 'token') return token === null ? null : tokenAcknowledgement(token)
  if (kind === 'any') return { kind: 'any' }
  if ((kind === 'typed' || kind === 'bound') && typeof boundMs === 'number') return { kind, boundMs }
  return null
}

/** By the control plane's clock: when it was said, and when the newest thing of the run was recorded and its lease ended, which is at most now. */
function recalled(nowMs: number, run: Run, recorded: Recorded): Attestation | null {
  const said = recorded.find(e => e.check === 'source-attested' && e.verdict === 'pass')
  const reason = said?.facts?.['reason']
  const by = said?.facts?.['by']
  if (said === undefined || typeof reason !== 'string' || typeof by !== 'string') return null
  const newest = recorded.reduce((latest, e) => Math.max(latest, Date.parse(e.recordedAt)), 0)
  const agoMs = newest - Date.parse(said.recordedAt) + Math.max(0, -run.leaseLeftMs) + Number(said.facts?.['ageMs'] ?? 0)
  return { reason, by, saidAtMs: nowMs - Math.max(0, agoMs) }
}
