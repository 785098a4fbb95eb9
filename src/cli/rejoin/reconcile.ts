import { writeNewFile } from '../../adapters/files/new-file.ts'
import { HomeregionError, isHomeregionError } from '../../domain/errors.ts'
import type { ForcedFailover, ReconcileItem } from '../../domain/failover.ts'
import { showKey } from '../../domain/key.ts'
import { itemsOf } from '../../engine/lost-keys.ts'
import { chosen, decide, failoverOf, lookAgain, type ReconcileParts, type Which } from '../../engine/reconcile.ts'
import { composeRecovery } from '../compose-recovery.ts'
import type { CliContext, World } from '../context.ts'
import { printable } from '../render/error.ts'
import { CSV_HEAD, csvRow, itemJson, itemsText } from '../render/reconcile.ts'

export const DECISIONS = { drop: 'dropped', reapply: 'reapplied', exported: 'exported' } as const
export type Decision = keyof typeof DECISIONS

export type ReconcileFlags = {
  readonly decide?: readonly string[]
  readonly allOf?: string
  readonly reason?: string
  readonly file?: string
  readonly key?: string
  readonly undecided?: boolean
  readonly csv?: string
}

/** Items of one page of the table. */
const SHOWN = 200

export async function reconcile(context: CliContext, runId: string, decision: Decision | undefined, flags: ReconcileFlags): Promise<void> {
  context.format('json')
  const which = whichOf(decision, flags)
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
    await list(context, world, runId, flags, compared)
  } finally {
    await recovery.close()
  }
}

/** @throws `usage` for a decision without its items, its reason or its file, and for the reverse */
function whichOf(decision: Decision | undefined, flags: ReconcileFlags): Which | null {
  const items = flags.decide ?? []
  const named = items.length > 0 || flags.allOf !== undefined
  if (!named && decision === undefined) return null
  if (!named) throw usage(`which items are to be "${decision ?? ''}" is not said`, '--decide ITEM or --all-of KEY')
  if (decision === undefined) throw usage('what is decided about them is not said', 'drop, reapply or exported after the run')
  if (items.length > 0 && flags.allOf !== undefined) throw usage('--decide and --all-of are two ways to say which', 'one of them')
  if ((flags.reason ?? '').trim() === '') throw usage('a decision needs --reason', '--reason TEXT: it stands with the decision')
  if (decision === 'exported' && flags.file === undefined)
    throw usage('exported needs the file they are written to', '--file FILE, which is not there yet')
  if (flags.allOf !== undefined) return { key: flags.allOf }
  return { items }
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
  const items = await chosen(parts.controlPlane, runId, which)
  if (items.length === 0) return context.out.line('Nothing to decide: there is no undecided item of that key.')
  // On disk before anything is decided: what is closed by hand has to be in somebody's hands.
  if (decision === 'exported' && flags.file !== undefined) await writeNewFile(flags.file, lines(items))
  const done: ReconcileItem[] = []
  const order = { decision: DECISIONS[decision], reason: (flags.reason ?? '').trim() }
  const json = context.format('json') === 'json'
  await decide(parts, failover, items, order, item => {
    done.push(item)
    if (!json) context.out.line(printable(`${item.id} of ${showKey(item.key)}: ${item.decision ?? '?'} by ${item.decidedBy ?? '?'}`))
  })
  if (json) context.out.line(JSON.stringify({ run: runId, decided: done }))
  const [exile] = await parts.controlPlane.exiles(failover.source)
  if (exile !== undefined && exile.endedAt === null)
    context.err.line(
      exile.undecided > 0
        ? `${exile.undecided} are undecided still: homeregion reconcile ${runId} --undecided`
        : `all are decided: homeregion rejoin ${failover.source}`,
    )
}

async function* lines(items: readonly ReconcileItem[]): AsyncIterable<string> {
  for (const item of items) yield `${await Promise.resolve(itemJson(item))}\n`
}

/** An empty list says that there is nothing only where somebody has looked. */
async function wasCompared({ controlPlane }: World, { source, runId }: ForcedFailover): Promise<boolean> {
  const exile = (await controlPlane.exiles(source)).find(e => e.runIds.includes(runId))
  return exile === undefined || exile.endedAt !== null || exile.done.includes('listed')
}

async function list(context: CliContext, world: World, runId: string, flags: ReconcileFlags, compared: boolean): Promise<void> {
  const filter = { ...(flags.key === undefined ? {} : { key: flags.key }), ...(flags.undecided === true ? { undecided: true } : {}) }
  const all = itemsOf(world.controlPlane, runId, filter)
  if (flags.csv !== undefined) {
    let count = 0
    await writeNewFile(
      flags.csv,
      (async function* () {
        yield CSV_HEAD
        for await (const item of all) {
          count += 1
          yield csvRow(item)
        }
      })(),
    )
    return context.out.line(`${count} items in ${printable(flags.csv)}`)
  }
  const items: ReconcileItem[] = []
  for await (const item of all) items.push(item)
  if (context.format('json') === 'json') return context.out.line(JSON.stringify({ run: runId, items }))
  if (items.length === 0)
    return context.out.line(
      compared
        ? `run ${runId}: nothing that only one side has is on the list`
        : `run ${runId}: nothing is on the list yet, as nobody has compared`,
    )
  context.out.line(itemsText(items.slice(0, SHOWN)))
  if (items.length > SHOWN) context.out.line(`+${items.length - SHOWN} more: --key KEY, --csv FILE or -o json`)
  const open = items.filter(i => i.decision === null).length
  context.out.line(`${items.length} items, ${open} undecided`)
  if (open > 0) context.out.line(`next:  homeregion reconcile ${runId} drop|reapply|exported --decide ITEM|--all-of KEY --reason TEXT`)
}

function usage(fact: string, next: string): HomeregionError {
  return new HomeregionError('usage', { fact, state: 'Nothing was decided.', next })
}
