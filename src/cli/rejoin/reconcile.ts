import { resolve } from 'node:path'
import { writeNewFile } from '../../adapters/files/new-file.ts'
import { HomeregionError, isHomeregionError } from '../../domain/errors.ts'
import type { ForcedFailover, ReconcileItem } from '../../domain/failover.ts'
import { showKey } from '../../domain/key.ts'
import { chosen, decide, decidedText, failoverOf, lookAgain, partDecided, type ReconcileParts, type Which } from '../../engine/reconcile.ts'
import { undecidedRuns } from '../../engine/undecided-runs.ts'
import { composeRecovery } from '../compose-recovery.ts'
import type { CliContext, World } from '../context.ts'
import { printable } from '../render/error.ts'
import { itemJson } from '../render/reconcile.ts'
import { counted } from '../render/words.ts'
import { fitted } from '../render/wrapped.ts'
import { listItems } from './list-items.ts'

export const DECISIONS = { drop: 'dropped', reapply: 'reapplied', exported: 'exported' } as const
export type Decision = keyof typeof DECISIONS

export type ReconcileFlags = {
  readonly decide?: readonly string[]
  readonly allOf?: readonly string[]
  readonly all?: boolean
  readonly reason?: string
  readonly file?: string
  readonly key?: string
  readonly undecided?: boolean
  readonly csv?: string
}

export async function reconcile(context: CliContext, runId: string, decision: Decision | undefined, flags: ReconcileFlags): Promise<void> {
  context.format('json')
  const which = whichOf(runId, decision, flags)
  const world = await context.connect()
  const failover = await failoverOf(world.controlPlane, runId)
  const { config } = await context.settings()
  const { recovery, fault, reapply } = composeRecovery(config, context.env)
  const parts: ReconcileParts = { controlPlane: world.controlPlane, region: name => world.region(name), recovery, fault, reapply }
  try {
    if (which !== null && decision !== undefined) return await decided(context, parts, runId, which, decision, flags)
    const note = await lookAgain(parts, failover).catch((error: unknown) => {
      if (isHomeregionError(error) && error.retriable) return error.text.fact
      throw error
    })
    const compared = note === null || (await wasCompared(world, failover))
    const known = compared
      ? 'this is what was found before; nobody looked again'
      : `not compared yet: how much only ${failover.source} has is not known`
    if (note !== null) context.err.line(printable(`note: ${known} (${note})`))
    await listItems(context, world.controlPlane, failover, { ...flags, compared })
  } finally {
    await recovery.close()
  }
}

/** @throws `usage` for a decision without its items, its reason or its file, and for the reverse */
function whichOf(runId: string, decision: Decision | undefined, flags: ReconcileFlags): Which | null {
  const [items, keys, all] = [flags.decide ?? [], flags.allOf ?? [], flags.all === true]
  const ways = [items.length > 0, keys.length > 0, all].filter(Boolean).length
  if (ways === 0 && decision === undefined) return null
  const file = decision === 'exported' ? ' --file FILE' : ''
  const command = `homeregion reconcile ${runId} ${decision ?? 'drop|reapply|exported'}`
  const next = `${command} --decide ITEM|--all-of KEY|--all${file} --reason TEXT`
  if (ways === 0) throw usage(`which items are to be "${decision ?? ''}" is not said`, next)
  if (decision === undefined) throw usage('what is decided about them is not said', next)
  if (ways > 1) throw usage('--decide, --all-of and --all are three ways to say which, and one is enough', next)
  if (flags.key !== undefined || flags.csv !== undefined || flags.undecided === true)
    throw usage('--key, --undecided and --csv are of the list, and decide nothing', next)
  if ((flags.reason ?? '').trim() === '') throw usage('a decision needs --reason: it stands with the decision', next)
  if (decision === 'exported' && flags.file === undefined) throw usage('exported needs --file, which is not there yet', next)
  if (decision !== 'exported' && flags.file !== undefined) throw usage(`--file is of exported, not of ${decision}`, next)
  return all ? { all } : keys.length > 0 ? { keys } : { items }
}

async function decided(
  context: CliContext,
  parts: ReconcileParts,
  runId: string,
  which: Which,
  decision: Decision,
  flags: ReconcileFlags,
): Promise<void> {
  const failover = await failoverOf(parts.controlPlane, runId)
  const { items, settled } = await chosen(parts.controlPlane, runId, which)
  const to = DECISIONS[decision]
  const { open, before } = partDecided(parts, runId, items, to)
  const json = context.format('json') === 'json'
  const say = (line: string) => (json ? undefined : context.out.line(fitted(context.out, printable(line), 2)))
  for (const key of settled) say(`nothing undecided of ${showKey(key)}: all of it was decided before`)
  for (const item of before) say(`${item.id} of ${showKey(item.key)}: was ${decidedText(item)}; its reason stands: ${item.reason ?? ''}`)
  // On disk before anything is decided: what is closed by hand has to be in somebody's hands.
  const file = decision === 'exported' && flags.file !== undefined && open.length > 0 ? resolve(context.cwd, flags.file) : null
  if (file !== null) {
    await writeNewFile(file, lines(open))
    say(`${counted(open.length, 'item')} written to ${file}`)
  }
  const done: ReconcileItem[] = []
  const reason = `${(flags.reason ?? '').trim()}${file === null ? '' : ` (file ${file})`}`
  await decide(parts, failover, open, { decision: to, reason }, item => {
    done.push(item)
    say(`${item.id} of ${showKey(item.key)}: ${item.decision ?? '?'} by ${item.decidedBy ?? '?'}`)
  })
  if (json) context.out.line(JSON.stringify({ run: runId, decided: done, decidedBefore: before, nothingUndecidedOf: settled, file }))
  else if (open.length === 0) context.out.line(`nothing was decided${flags.file === undefined ? '' : ', and no file was written'}`)
  else context.out.line(`${counted(done.length, 'item')} ${to}`)
  await nextOf(context, parts.controlPlane, failover)
}

async function nextOf(context: CliContext, controlPlane: World['controlPlane'], { source }: ForcedFailover): Promise<void> {
  const [exile] = await controlPlane.exiles(source)
  if (exile === undefined || exile.endedAt !== null) return
  const [run] = await undecidedRuns(controlPlane, exile)
  if (run === undefined) return context.err.line(`next:  homeregion rejoin ${source} --reason TEXT   (all are decided)`)
  context.err.line(`next:  homeregion reconcile ${run} --undecided   (${exile.undecided} undecided still)`)
}

async function* lines(items: readonly ReconcileItem[]): AsyncIterable<string> {
  for (const item of items) yield `${await Promise.resolve(itemJson(item))}\n`
}

/** An empty list says that there is nothing only where somebody has looked. */
async function wasCompared({ controlPlane }: World, { source, runId }: ForcedFailover): Promise<boolean> {
  const exile = (await controlPlane.exiles(source)).find(e => e.runIds.includes(runId))
  return exile === undefined || exile.endedAt !== null || exile.done.includes('listed')
}

function usage(fact: string, next: string): HomeregionError {
  return new HomeregionError('usage', { fact, state: 'Nothing was decided.', next })
}
