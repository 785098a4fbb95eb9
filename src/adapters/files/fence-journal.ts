import { join } from 'node:path'
import { z } from 'zod'
import { HomeregionError, isHomeregionError } from '../../domain/errors.ts'
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

type Log = Pick<ControlPlane, 'logFence' | 'fenceLog' | 'fencesTold'>

/** The fence log of one service on this machine, and its way into the control plane. `handedOver` lines say what need not be sent again. */
export function createFenceJournal(folder: string, service: string, controlPlane: Log): FenceJournal {
  const file = createAppendOnlyFile(join(folder, `${encodeURIComponent(service)}.fences.jsonl`))
  // A control plane that did not answer once is not waited for again by every entry of one command: an emergency has no time for it.
  let silent: string | null = null
  let turn: Promise<unknown> = Promise.resolve()

  const entries = async (): Promise<{ readonly all: readonly FenceEntry[]; readonly pending: readonly FenceEntry[] }> => {
    const lines = await keeping(file.path, () => file.read())
    const all: FenceEntry[] = lines.flatMap(line => entryLine.safeParse(line).data?.entry ?? [])
    const handedOver = new Set(lines.flatMap(line => handedOverLine.safeParse(line).data?.handedOver ?? []))
    return { all, pending: all.filter(entry => !handedOver.has(entry.id)) }
  }

  /** What the control plane answers, or null when it does not. */
  const asked = async <T>(ask: () => Promise<T>): Promise<T | null> => {
    if (silent !== null) return null
    try {
      return await ask()
    } catch (error) {
      if (!isHomeregionError(error)) throw error
      silent = error.text.fact
      return null
    }
  }

  /** If the process dies before `handedOver` is written they are sent again, and the control plane leaves them as they are. */
  const push = async (): Promise<number | null> => {
    const { pending } = await entries()
    for (let i = 0; i < pending.length; i += CHUNK) {
      const chunk = pending.slice(i, i + CHUNK)
      if ((await asked(async () => (await controlPlane.logFence(chunk), true))) === null) return null
      await keeping(file.path, () => file.append([{ handedOver: chunk.map(entry => entry.id) }]))
    }
    return pending.length
  }

  const journal: FenceJournal = {
    file: file.path,
    keep: async added => {
      const lines = added.map(entry => ({ entry }))
      await keeping(file.path, () => file.append(lines))
    },
    handOver: async (again = false) => {
      if (again) silent = null
      const mine = turn.then(push, push)
      turn = mine.catch(() => undefined)
      return await mine
    },
    refusal: () => silent,
    pending: async () => (await entries()).pending,
    newestNote: async (region, fence) => {
      // Handed over first: the order in which notes reach the control plane is the order that counts.
      const handed = await journal.handOver()
      const told = handed === null ? null : await asked(() => controlPlane.fenceLog({ region, fence, events: ['noted'], limit: 1 }))
      if (told !== null) return told[0] ?? null
      return (await entries()).all.filter(e => e.event === 'noted' && e.region === region && e.fence === fence).at(-1) ?? null
    },
    told: async () => {
      const handed = await journal.handOver()
      const told = handed === null ? null : await asked(() => controlPlane.fencesTold())
      if (told !== null) return { entries: told, from: 'control plane' }
      const newest = new Map((await entries()).all.filter(e => e.event !== 'noted').map(e => [`${e.region} ${e.fence}`, e]))
      return { entries: [...newest.values()], from: 'this machine' }
    },
  }
  return journal
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
