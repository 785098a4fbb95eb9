import { writeNewFile } from '../../adapters/files/new-file.ts'
import type { ForcedFailover, ReconcileItem } from '../../domain/failover.ts'
import { showKey } from '../../domain/key.ts'
import type { ControlPlane } from '../../domain/ports.ts'
import { itemsOf } from '../../engine/lost-keys.ts'
import type { CliContext } from '../context.ts'
import { printable } from '../render/error.ts'
import { CSV_HEAD, csvRow, itemText, keysText, sumUp } from '../render/reconcile.ts'
import { counted } from '../render/words.ts'
import { fitted } from '../render/wrapped.ts'

export type ListFlags = {
  readonly key?: string
  readonly undecided?: boolean
  readonly csv?: string
  /** Somebody has looked, so that an empty list says that there is nothing. */
  readonly compared: boolean
}

/** Items with all that was written, and keys of the summary: more are for a file. */
const ITEMS_SHOWN = 50
const KEYS_SHOWN = 200

/** By key; with --key its items, each with what was written. */
export async function listItems(
  context: CliContext,
  controlPlane: ControlPlane,
  failover: ForcedFailover,
  flags: ListFlags,
): Promise<void> {
  const { runId } = failover
  const filter = { ...(flags.key === undefined ? {} : { key: flags.key }), ...(flags.undecided === true ? { undecided: true } : {}) }
  const all = itemsOf(controlPlane, runId, filter)
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
    return context.out.line(`${counted(count, 'item')} in ${printable(flags.csv)}`)
  }
  const items: ReconcileItem[] = []
  for await (const item of all) items.push(item)
  if (context.format('json') === 'json') return context.out.line(JSON.stringify({ run: runId, items }))
  const say = (line: string) => context.out.line(fitted(context.out, printable(line), 2))
  if (items.length === 0) return await sayNone(controlPlane, runId, flags, say)
  if (flags.key === undefined) summary(context, failover, items)
  else await ofKey(context, controlPlane, failover, { key: flags.key, items })
}

async function sayNone(controlPlane: ControlPlane, runId: string, flags: ListFlags, say: (line: string) => void): Promise<void> {
  if (!flags.compared) return say(`run ${runId}: nothing is on the list yet, as nobody has compared`)
  const some = flags.undecided === true ? 'nothing undecided' : 'nothing that only one side has'
  const of = flags.key === undefined ? '' : ` of ${showKey(flags.key)}`
  say(`run ${runId}: ${some}${of} is on the list`)
  const open = flags.key === undefined ? 0 : await undecidedOf(controlPlane, runId)
  if (open > 0) say(`next:  homeregion reconcile ${runId} --undecided   (${open} undecided of other keys)`)
}

function summary({ out }: CliContext, { runId, source, target }: ForcedFailover, items: readonly ReconcileItem[]): void {
  const keys = sumUp(items)
  const open = keys.reduce((sum, key) => sum + key.undecided, 0)
  out.line(`run ${runId}, ${source} -> ${target}: ${counted(items.length, 'write')} only one side has, ${open} undecided`)
  out.line(keysText(keys.slice(0, KEYS_SHOWN)))
  if (keys.length > KEYS_SHOWN) out.line(`+${counted(keys.length - KEYS_SHOWN, 'key')} more: --csv FILE or -o json`)
  const [first] = keys.filter(key => key.undecided > 0)
  if (first === undefined) return
  out.line(`next:  homeregion reconcile ${runId} --key ${showKey(first.key)}   (what was written)`)
  out.line(`       homeregion reconcile ${runId} drop|reapply|exported --all --reason TEXT`)
}

async function ofKey(
  { out }: CliContext,
  controlPlane: ControlPlane,
  { runId }: ForcedFailover,
  { key, items }: { readonly key: string; readonly items: readonly ReconcileItem[] },
): Promise<void> {
  for (const item of items.slice(0, ITEMS_SHOWN)) out.line(`${itemText(item, out)}\n`)
  if (items.length > ITEMS_SHOWN) out.line(`+${counted(items.length - ITEMS_SHOWN, 'item')} more: --csv FILE or -o json`)
  const open = items.filter(i => i.decision === null)
  const elsewhere = (await undecidedOf(controlPlane, runId)) - open.length
  out.line(`${counted(items.length, 'item')} of ${showKey(key)}, ${open.length} undecided; ${elsewhere} undecided of other keys`)
  const [first] = open
  if (first === undefined) return
  out.line(`next:  homeregion reconcile ${runId} drop|reapply|exported --reason TEXT`)
  out.line(`       with --decide ${first.id} or --all-of ${showKey(key)}`)
}

async function undecidedOf(controlPlane: ControlPlane, runId: string): Promise<number> {
  return (await controlPlane.reconcileCounts([runId]))[0]?.undecided ?? 0
}
