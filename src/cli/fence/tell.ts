import type { FenceJournal } from '../../domain/fence.ts'
import type { CliContext, World } from '../context.ts'
import { printable } from '../render/error.ts'

/** The newest of many that are kept aside; the file has them all. */
const SHOWN = 5

/** Hands over what an emergency left on this machine only, and says so. Quiet where there is nothing. */
export async function reconcile(context: CliContext, world: World): Promise<void> {
  const { fenceJournal } = world
  try {
    // Whether they are this control plane's is known only once it has said which one it is.
    const handedOver = await fenceJournal.handOver(true)
    if (handedOver === null && (await fenceJournal.pending()).length > 0)
      context.err.line(printable(`note: the fence log of this machine was not handed over: ${fenceJournal.refusal() ?? 'no answer'}`))
    else if ((handedOver ?? 0) > 0)
      context.err.line(`note: ${handedOver} entries of the fence log that stood on this machine only are in the control plane now`)
    for (const line of await asideLines(fenceJournal)) context.err.line(printable(`note: ${line}`))
  } catch (error) {
    context.err.line(
      printable(`note: the fence log of this machine was not handed over: ${error instanceof Error ? error.message : String(error)}`),
    )
  }
}

/** What stands on this machine and is not handed over, one line for each cause. */
export async function asideLines(journal: FenceJournal): Promise<readonly string[]> {
  const causes = new Map<string, string[]>()
  for (const { entry, why } of await journal.aside()) {
    const told = causes.get(why) ?? []
    causes.set(why, [...told, `${entry.event} of ${entry.fence} (${entry.region}) at ${entry.at}`])
  }
  return [...causes].map(([why, told]) => {
    const shown = told.slice(-SHOWN)
    const more = told.length > shown.length ? `${told.length - shown.length} more, ` : ''
    return `${told.length} entries of ${journal.file} are kept aside, ${why}: ${more}${shown.join(', ')}`
  })
}

/** After a change: where it is on record. */
export async function recordedWhere(journal: FenceJournal): Promise<{ readonly controlPlane: boolean; readonly line: string }> {
  const left = await journal.pending().catch(() => null)
  const aside = await asideLines(journal).catch((): readonly string[] => [])
  if (left?.length === 0) return { controlPlane: true, line: ['recorded in the control plane', ...aside].join('; ') }
  return {
    controlPlane: false,
    line:
      left === null
        ? `NOT recorded: ${journal.file} cannot be read`
        : `control plane not reached${journal.refusal() === null ? '' : ` (${journal.refusal()})`}: recorded in ${journal.file}; the next homeregion status, doctor or fence command here that reaches it hands it over`,
  }
}
