import type { UnfinishedDrill } from '../../domain/drill.ts'
import { formatMs } from '../../domain/duration.ts'
import { HomeregionError } from '../../domain/errors.ts'
import { showKey } from '../../domain/key.ts'
import type { CliContext, World } from '../context.ts'
import { createOperator, UNWATCHED } from '../operator.ts'
import { printable } from '../render/error.ts'
import { createProgress, noLiveLine } from '../render/progress.ts'
import { fitted } from '../render/wrapped.ts'
import { holderIsGone, isAlive } from '../settle-run.ts'
import { leg, letGo } from './leg.ts'

/**
 * Keys of this drill that an earlier one left on the way are brought back to where they belong before anything else: what this one would find
 * where they are is no home of theirs. Nothing is taken from a drill that is under way.
 * @throws `key-busy` while one is under way, `needs-human` when they cannot be brought home
 */
export async function bringHome(
  context: CliContext,
  world: World,
  { keys = [], runbook }: { readonly keys?: readonly string[]; readonly runbook: string },
  interrupted: () => boolean,
): Promise<{ readonly returned: readonly string[] }> {
  const returned: string[] = []
  for (const drill of await world.controlPlane.unfinishedDrills()) {
    if (!drill.keys.some(key => keys.includes(key))) continue
    await requireOver(world, drill)
    tell(context, `the drill that ${whose(drill)} began at ${drill.at} did not end; its keys belong in ${drill.home}`)
    if (drill.openRun !== null) await endRun(context, world, drill.openRun)
    const now = (await world.controlPlane.unfinishedDrills()).find(d => d.id === drill.id)
    returned.push(...(now === undefined ? [] : await moveHome(context, world, now, { runbook, interrupted })))
  }
  return { returned }
}

// A drill between its two moves counts at the far consumers: seconds. One that is this old is dead, whatever its process's number is used for now.
const BETWEEN_MS = 15 * 60_000

/** Nothing is taken from one that lives, and no other is begun beside it: of a key the newest drill alone is known. @throws `key-busy` */
async function requireOver(world: World, drill: UnfinishedDrill): Promise<void> {
  const { openRun, holder, at } = drill
  const run = openRun === null ? null : await world.controlPlane.run(openRun)
  const here = holder.host === world.holder.host && holder.pid !== world.holder.pid && isAlive(holder.pid)
  const between = openRun === null && here && Date.now() - Date.parse(at) <= BETWEEN_MS
  const moving = run !== null && run.leaseAlive && !holderIsGone(world, run)
  if (!between && !moving) return
  throw new HomeregionError('key-busy', {
    fact: `the drill that ${whose(drill)} began at ${at} is ${moving ? `under way (run ${run.id})` : 'between its two moves'}`,
    state: 'Nothing was changed.',
    next: `homeregion status   (the same command once it has ended${moving ? `, or in ${formatMs(run.leaseLeftMs)} if its process is dead` : ''})`,
  })
}

/** What was begun is taken back, or ended where it cannot be: either way the keys can be moved again. */
async function endRun(context: CliContext, world: World, runId: string): Promise<void> {
  const run = await world.controlPlane.run(runId)
  if (run === null) return
  tell(context, `its run ${runId} is ended first`)
  const progress = createProgress(context.err, noLiveLine)
  const answers = { yes: true, confirm: run.moves[0]?.key ?? null, confirmCount: run.moves.length }
  const operator = createOperator(context, answers, progress.report, UNWATCHED, progress.close)
  await letGo(world, operator, runId, holderIsGone(world, run))
}

async function moveHome(
  context: CliContext,
  world: World,
  drill: UnfinishedDrill,
  how: { readonly runbook: string; readonly interrupted: () => boolean },
): Promise<readonly string[]> {
  const { away, home, openRun } = drill
  if (openRun !== null)
    throw new HomeregionError('needs-human', {
      fact: `run ${openRun}, which an earlier drill left, could not be ended`,
      state: 'Its keys stay as the run has them. No drill was begun.',
      next: `homeregion resume ${openRun}`,
    })
  const began = performance.now()
  const back = await leg(context, world, { keys: away, to: home, ...how })
  const names = away.map(showKey).join(' ')
  if (back.outcome === 'moved' && !back.wanted) {
    tell(context, `brought home to ${home} in ${formatMs(performance.now() - began)}: ${names}\n`)
    return away
  }
  const found = await world.controlPlane.ownership(away)
  const asked = back.outcome === 'pre-empted' || back.wanted
  throw new HomeregionError(asked ? 'key-busy' : 'needs-human', {
    fact: `the keys that an earlier drill left ${back.outcome === 'moved' ? 'are home in' : 'could not be brought home to'} ${home}: ${back.why ?? 'not known why'}`,
    state: `${found.map(r => `${showKey(r.key)} is ${r.state}, home ${r.homeRegion}, epoch ${r.epoch}`).join('; ')}. No drill was begun.`,
    next: back.next ?? `homeregion transfer ${names} --to ${home}`,
  })
}

function whose({ holder }: UnfinishedDrill): string {
  return `${holder.user}@${holder.host} pid ${holder.pid}`
}

function tell({ err }: CliContext, text: string): void {
  err.line(fitted(err, printable(text), 2))
}
