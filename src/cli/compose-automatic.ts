import type { AutomaticEnd, AutomaticFailover, AutomaticLook } from '../agent/automatic-failover.ts'
import type { AgentLog } from '../agent/parts.ts'
import { HomeregionError, isHomeregionError } from '../domain/errors.ts'
import type { Plan } from '../domain/plan.ts'
import type { RunEvent } from '../engine/context.ts'
import { startForced } from '../engine/forced-run.ts'
import type { CliContext, World } from './context.ts'
import { type Prepared, prepare } from './failover/prepare.ts'

/** Runs that an agent began are known by how their reason begins. */
const REASON = 'automatic:'
const RUNS_READ = 10

type Judged = { readonly look: AutomaticLook; readonly ready: { readonly prepared: Prepared; readonly plan: Plan } | null }

/** The forced failover of the command line, as far as it may go without a person: on a lease or an external fence, inside the policy's bound. */
export function composeAutomatic(context: CliContext, world: World, log: AgentLog): AutomaticFailover {
  const judge = async (source: string): Promise<Judged> => {
    const { config } = await context.settings()
    const maxLossMs = config.policy.automatic?.maxLossMs ?? -1
    const mine = (why: string): Judged => ({ look: { kind: 'not-mine', why }, ready: null })
    const exiles = (await world.controlPlane.exiles()).filter(e => e.endedAt === null).map(e => e.region)
    if (exiles.includes(source)) return { look: { kind: 'answers' }, ready: null }
    const others = config.regions.map(r => r.name).filter(name => name !== source && !exiles.includes(name))
    const [target] = others
    if (target === undefined || others.length > 1)
      return mine(`${others.length} regions could take its keys, and which one does is for a person`)
    try {
      const prepared = await prepare(context, world, [], { from: source, to: target })
      const { estimate, fence, plan } = prepared
      const { ms } = estimate.totals.unknown
      if (fence === 'source-attested') return mine('nothing but a person’s word would fence it')
      if (plan === null || plan.moves.length === 0) return mine('the policy lets none of its keys move')
      if (ms === null) return mine('nobody can say how much would be lost')
      if (ms > maxLossMs) return mine(`more may be lost than policy.automatic.maxLoss`)
      const atIt = prepared.rivals.find(({ run }) => run.leaseAlive)
      if (atIt !== undefined) return mine(`run ${atIt.run.id} of ${atIt.run.startedBy} is at it`)
      const look: AutomaticLook = { kind: 'ready', target, keys: plan.moves.length, lossMs: ms, staying: estimate.blocked.length }
      return { look, ready: { prepared, plan } }
    } catch (error) {
      if (isHomeregionError(error, 'source-answers')) return { look: { kind: 'answers' }, ready: null }
      if (isHomeregionError(error)) return mine(error.text.fact)
      throw error
    }
  }

  const run = async (source: string, signal: AbortSignal): Promise<AutomaticEnd> => {
    const { look, ready } = await judge(source)
    if (ready === null)
      return {
        exit: 'refused',
        fact: look.kind === 'not-mine' ? look.why : `${source} answers now, or is in exile already`,
        next: 'homeregion status',
      }
    const { config } = await context.settings()
    const { prepared, plan } = ready
    // Nobody drives them now; the first commit takes the keys and closes the others.
    for (const { run, keys } of prepared.rivals) log('automatic-rival', { region: source, run: run.id, startedBy: run.startedBy, keys })
    const operator = {
      report: (event: RunEvent) => tell(log, source, event),
      interrupted: () => signal.aborted,
      // The policy has confirmed it in advance; nobody is there to wait for.
      confirm: () => Promise.resolve(true),
      atDeadline: () => Promise.resolve('abort' as const),
      watches: false,
    }
    const { settings, fence, estimate } = prepared
    const acknowledgement = { kind: 'bound' as const, boundMs: config.policy.automatic?.maxLossMs ?? 0 }
    const end = await startForced(
      { engine: world.engine(operator), operator, settings },
      {
        ...{ plan, estimate, fence, acknowledgement, attestation: null, observeMs: 0, automatic: true },
        reason: `${REASON} ${source} is dark, and policy.automatic lets an agent fail it over`,
      },
    )
    return { exit: end.exit, fact: end.fact, next: end.next }
  }

  return {
    look: async source => (await judge(source)).look,
    run: async (source, signal) => {
      try {
        return await run(source, signal)
      } catch (error) {
        if (!(error instanceof HomeregionError)) throw error
        return { exit: error.exit, fact: error.text.fact, next: error.text.next ?? null }
      }
    },
    sinceLastMs: async () => {
      const runs = await world.controlPlane.runs({ reasonBegins: REASON, limit: RUNS_READ })
      // Since its lease ended, by the control plane's clock: never more than since it began.
      return runs.length === 0 ? null : Math.min(...runs.map(r => Math.max(0, -r.leaseLeftMs)))
    },
  }
}

function tell(log: AgentLog, region: string, event: RunEvent): void {
  switch (event.type) {
    case 'run-opened':
      return log('automatic-run', { region, run: event.runId })
    case 'step-started':
      return log('automatic-step', { region, step: event.step.id })
    case 'note':
      return log('automatic-note', { region, text: event.text })
    default:
  }
}
