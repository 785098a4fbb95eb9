import { randomUUID } from 'node:crypto'
import { systemClock } from '../../adapters/system/clock.ts'
import { type Config, otherRegions } from '../../domain/config.ts'
import { suggestion } from '../../domain/did-you-mean.ts'
import { formatMs } from '../../domain/duration.ts'
import { HomeregionError } from '../../domain/errors.ts'
import type { Exile } from '../../domain/failover.ts'
import type { CheckUse, Step } from '../../domain/runbook.ts'
import { observe } from '../../engine/checks/observe.ts'
import type { CheckSubject, Engine } from '../../engine/context.ts'
import { notInExile, openExile, type Taken, takenKeys } from '../../engine/lost-keys.ts'
import { failoverOf } from '../../engine/reconcile.ts'
import { rejoin as bringBack } from '../../engine/rejoin.ts'
import { composeHooks } from '../compose-children.ts'
import { composeRecovery } from '../compose-recovery.ts'
import type { CliContext, World } from '../context.ts'
import { requireAsking, requireConsent } from '../fence/consent.ts'
import { reasonOf } from '../fence/select.ts'
import { watchSignals } from '../operator.ts'
import { printable } from '../render/error.ts'
import { resultText } from '../render/fence.ts'
import { fitted } from '../render/wrapped.ts'
import { confirmStep } from './confirm-step.ts'
import { followedRunbook, type RunbookFlags } from './pinned-runbook.ts'

export type RejoinFlags = RunbookFlags & { readonly reason: string; readonly yes?: boolean }

export async function rejoin(context: CliContext, region: string, flags: RejoinFlags): Promise<void> {
  const format = context.format('json')
  const yes = flags.yes === true
  requireAsking(context, yes)
  const reason = reasonOf(flags.reason)
  const { config } = await context.settings()
  requireKnown(config, region)
  const world = await context.connect()
  // Before anything is asked: a person who types a name expects something of it.
  const exile = await openExile(world.controlPlane, region)
  if (exile === null) throw notInExile(region)
  await requireConsent(yes, {
    region,
    to: 'fence it, replace its rows of the keys that were taken from it, and open it again',
  })
  const { runbook, done, note } = await followedRunbook(world.controlPlane, region, flags, context.cwd)
  context.err.line(fitted(context.err, printable(note), 2))
  const { recovery, fault } = composeRecovery(config, context.env)
  const signals = watchSignals(context, () => undefined)
  const told: string[] = []
  const engine = world.engine({
    report: () => undefined,
    confirm: () => Promise.resolve(false),
    atDeadline: () => Promise.resolve('abort'),
    interrupted: signals.interrupted,
  })
  try {
    await bringBack(
      {
        ...{ controlPlane: world.controlPlane, region: name => world.region(name), fences: name => world.fences(name) },
        others: otherRegions(config, region),
        ...{ recovery, fault, shared: config.topology === 'shared', defaultHome: config.ownership.defaultHome },
        leased: config.regions.some(r => r.name === region && r.lease !== null),
        ...{ runbook, done, hooks: composeHooks(config, context.env), clock: systemClock },
        look: async (step, uses, taken) => await looked(engine, region, step, uses, taken),
        confirm: async step => await confirmStep(yes, step),
        by: `${world.holder.user}@${world.holder.host}`,
        watcher: {
          started: () => undefined,
          ended: result => context.err.line(resultText(result, context.err)),
          interrupted: signals.interrupted,
        },
        tell: line => {
          told.push(line)
          if (format === 'text') context.out.line(fitted(context.out, printable(line), 2))
        },
      },
      region,
      reason,
    )
    const failbacks = await failbacksOf(world, exile, config.policy.coolDownMs)
    if (format === 'json') context.out.line(JSON.stringify({ region, back: true, done: told, next: failbacks }))
    else for (const line of failbacks) context.out.line(`next:  ${printable(line)}`)
  } finally {
    signals.stop()
    await recovery.close()
  }
}

/** Of each run that still has keys away: they are at home where it took them until somebody moves them back. */
async function failbacksOf({ controlPlane }: World, exile: Exile, coolDownMs: number): Promise<readonly string[]> {
  const runs = new Set((await takenKeys(controlPlane, exile)).map(k => k.runId))
  const failovers = await Promise.all([...runs].map(async runId => await failoverOf(controlPlane, runId)))
  return failovers.map(({ runId, ageMs }) => {
    const waits = ageMs >= coolDownMs ? '' : `   (in ${formatMs(coolDownMs - ageMs)}, or with --reason TEXT)`
    return `homeregion failback ${runId}${waits}`
  })
}

/** The checks see the keys as if they moved from their new home to the region: what they ask is whether the two sides are there for that. */
async function looked(engine: Engine, region: string, step: Step, uses: readonly CheckUse[], taken: readonly Taken[]) {
  const moves = taken.map(k => ({ key: k.key, source: k.home, target: region, epoch: k.homeEpoch, seq: 0 }))
  const subject: Omit<CheckSubject, 'memory'> = {
    ...{ moves, move: moves[0] ?? null, barrierEventId: null },
    ...{ startedMonotonicMs: engine.clock.monotonicMs(), standing: [] },
  }
  const bound = { runId: taken[0]?.runId ?? randomUUID(), step: step.id, attemptId: null }
  return await Promise.all(uses.map(async use => await observe(engine, { ...subject, memory: new Map<string, unknown>() }, use, bound)))
}

function requireKnown(config: Config, region: string): void {
  const names = config.regions.map(r => r.name)
  if (names.includes(region)) return
  throw new HomeregionError('unknown-region', {
    fact: `there is no region ${JSON.stringify(region)}; ${suggestion(region, names)}`,
    state: 'Nothing was changed.',
    next: 'homeregion config show',
  })
}
