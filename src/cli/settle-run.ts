import { parsePinned } from '../adapters/files/runbook-file.ts'
import { isDrillRun } from '../domain/drill.ts'
import { HomeregionError } from '../domain/errors.ts'
import { type Holder, isOpen, type Run } from '../domain/journal.ts'
import { showKey } from '../domain/key.ts'
import type { Runbook } from '../domain/runbook.ts'
import { abortRun, resumeRun } from '../engine/run.ts'
import type { CliContext, World } from './context.ts'
import { answersOf, drive, type ResumeFlags, unknownRun } from './run-command.ts'

export async function resume(context: CliContext, runId: string, flags: ResumeFlags): Promise<void> {
  const { world, run } = await openRunOf(context, runId)
  if (run.intent === 'failover') {
    const { resumeFailover } = await import('./failover/settle.ts')
    return await resumeFailover(context, world, run, { ...flags, takeOver: flags.takeOver === true || holderIsGone(world, run) })
  }
  const options = {
    reason: flags.reason ?? null,
    observeMs: flags.observe ?? null,
    takeOver: flags.takeOver === true || holderIsGone(world, run),
  }
  await drive(context, answersOf(flags), async operator => await resumeRun(world.engine(operator), runId, pinned(runId), options))
  await tellOfDrill(context, world, run)
}

export async function abort(context: CliContext, runId: string, flags: { readonly takeOver?: boolean }): Promise<void> {
  const { world, run } = await openRunOf(context, runId)
  const takeOver = flags.takeOver === true || holderIsGone(world, run)
  if (run.intent === 'failover') {
    const { abortFailover } = await import('./failover/settle.ts')
    return await abortFailover(context, world, run, takeOver)
  }
  await drive(context, answersOf({}), async operator => await abortRun(world.engine(operator), runId, pinned(runId), { takeOver }))
  await tellOfDrill(context, world, run)
}

/** A drill's run that is over may have left its keys away from home. */
async function tellOfDrill(context: CliContext, { controlPlane }: World, run: Run): Promise<void> {
  if (!isDrillRun(run)) return
  const left = (await controlPlane.unfinishedDrills()).find(drill => run.moves.some(move => drill.away.includes(move.key)))
  if (left === undefined) return
  const keys = left.keys.map(showKey).join(',')
  context.err.line(`next:  homeregion drill --keys ${keys}   (brings them home to ${left.home} first)`)
}

async function openRunOf(context: CliContext, runId: string): Promise<{ world: World; run: Run }> {
  const world = await context.connect()
  const run = await world.controlPlane.run(runId)
  if (run === null) throw unknownRun(runId)
  if (isOpen(run)) return { world, run }
  throw new HomeregionError('run-closed', {
    fact: `run ${runId} ended at ${run.endedAt ?? '?'} as ${run.state}`,
    state: 'Nothing was changed.',
    next: `homeregion run show ${runId}`,
  })
}

/** The text a run pinned, not the file of today. */
export function pinned(runId: string): (text: string) => Runbook {
  return text => parsePinned(text, `run ${runId}`)
}

/** A holder on this machine whose process no longer exists needs no lease to run out: it cannot come back. */
export function holderIsGone(world: World, run: Run): boolean {
  const mine: Holder = world.holder
  if (run.holder === null) return true
  return run.holder.host === mine.host && !isAlive(run.holder.pid)
}

export function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0)
    return true
  } catch (error) {
    // EPERM: it lives and belongs to somebody else.
    return (error as NodeJS.ErrnoException).code !== 'ESRCH'
  }
}
