import { join } from 'node:path'
import { z } from 'zod'
import { HomeregionError, isHomeregionError } from '../../domain/errors.ts'
import type { Json } from '../../domain/evidence.ts'
import { FENCE_EVENTS, FENCE_KINDS, type FenceEntry, type FenceJournal } from '../../domain/fence.ts'
import type { ControlPlane } from '../../domain/ports.ts'
import { createAppendOnlyFile } from './append-only-file.ts'

/** Entries handed over at once; an outage of a day has fewer. */
const CHUNK = 200

const entryLine = z.object({
  entry: z.object({
    ...{ id: z.string(), region: z.string(), fence: z.string(), kind: z.enum(FENCE_KINDS), event: z.enum(FENCE_EVENTS), at: z.string() },
    ...{ by: z.string(), host: z.string(), runId: z.string().nullable(), reason: z.string().nullable(), detail: z.json() },
  }),
})
const handedOverLine = z.object({ handedOver: z.array(z.string()) })

type Log = Pick<ControlPlane, 'logFence' | 'fenceLog'>

/**
 * The fence log of one service on this machine, and its way into the control plane. This machine comes first, so that a fence can be applied
 * while the control plane is down; `handedOver` lines say what need not be sent again.
 */
export function createFenceJournal(folder: string, service: string, controlPlane: Log): FenceJournal {
  const file = createAppendOnlyFile(join(folder, `${encodeURIComponent(service)}.fences.jsonl`))
  // A control plane that did not answer once is not waited for again by every entry of one command: an emergency has no time for it.
  let silent = false

  const entries = async () => {
    const lines = await keeping(file.path, () => file.read())
    return lines.flatMap(line => {
      const parsed = entryLine.safeParse(line)
      return parsed.success ? [parsed.data.entry as FenceEntry] : []
    })
  }

  const pending = async () => {
    const lines = await keeping(file.path, () => file.read())
    const handedOver = new Set(lines.flatMap(line => handedOverLine.safeParse(line).data?.handedOver ?? []))
    return (await entries()).filter(entry => !handedOver.has(entry.id))
  }

  /** If the process dies before `handedOver` is written they are sent again, and the control plane leaves them as they are. */
  const handOver = async (waiting: readonly FenceEntry[]): Promise<boolean> => {
    try {
      for (let i = 0; i < waiting.length; i += CHUNK) {
        const chunk = waiting.slice(i, i + CHUNK)
        await controlPlane.logFence(chunk)
        await file.append([{ handedOver: chunk.map(entry => entry.id) }])
      }
      return true
    } catch (error) {
      if (!isHomeregionError(error)) throw error
      silent = true
      return false
    }
  }

  return {
    file: file.path,
    record: async added => {
      await keeping(file.path, () => file.append(added.map(entry => ({ entry }) as unknown as Json)))
      return silent ? false : await handOver(await pending())
    },
    reconcile: async () => {
      silent = false
      const waiting = await pending()
      return waiting.length === 0 || (await handOver(waiting)) ? waiting.length : null
    },
    pending,
    newestNote: async (region, fence) => {
      const here = (await entries()).filter(e => e.event === 'noted' && e.region === region && e.fence === fence).at(-1) ?? null
      if (silent) return here
      if (!(await handOver(await pending()))) return here
      try {
        const [told] = await controlPlane.fenceLog({ region, fence, events: ['noted'], limit: 1 })
        return told ?? here
      } catch (error) {
        if (!isHomeregionError(error)) throw error
        silent = true
        return here
      }
    },
  }
}

async function keeping<T>(path: string, work: () => Promise<T>): Promise<T> {
  try {
    return await work()
  } catch (error) {
    const why = error instanceof Error ? ((error as NodeJS.ErrnoException).code ?? error.message) : String(error)
    throw new HomeregionError(
      'fence-failed',
      {
        fact: `what happens to fences cannot be kept in ${path}: ${why}`,
        state: 'Nothing was changed without a record of it.',
        next: 'make the folder writable, or set HOMEREGION_STATE_DIR',
      },
      { cause: error },
    )
  }
}
