import type { FenceJournal } from '../../domain/fence.ts'
import type { CliContext, World } from '../context.ts'
import { printable } from '../render/error.ts'

/** Hands over what an emergency left on this machine only, and says so. Quiet where there is nothing, and where nobody answers. */
export async function reconcile(context: CliContext, world: World): Promise<void> {
  const { fenceJournal } = world
  try {
    if ((await fenceJournal.pending()).length === 0) return
    const handedOver = await fenceJournal.handOver(true)
    if (handedOver !== null && handedOver > 0)
      context.err.line(`note: ${handedOver} entries of the fence log that stood on this machine only are in the control plane now`)
  } catch (error) {
    context.err.line(
      printable(`note: the fence log of this machine was not handed over: ${error instanceof Error ? error.message : String(error)}`),
    )
  }
}

/** After a change: where it is on record. */
export async function recordedWhere(journal: FenceJournal): Promise<{ readonly controlPlane: boolean; readonly line: string }> {
  const left = await journal.pending().catch(() => null)
  if (left?.length === 0) return { controlPlane: true, line: 'recorded in the control plane' }
  return {
    controlPlane: false,
    line:
      left === null
        ? `NOT recorded: ${journal.file} cannot be read`
        : `control plane not reached${journal.refusal() === null ? '' : ` (${journal.refusal()})`}: recorded in ${journal.file}; the next homeregion status, doctor or fence command here that reaches it hands it over`,
  }
}
