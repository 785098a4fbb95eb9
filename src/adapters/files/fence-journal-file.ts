import { join } from 'node:path'
import { z } from 'zod'
import { HomeregionError } from '../../domain/errors.ts'
import { type AsideEntry, FENCE_EVENTS, FENCE_KINDS, type FenceEntry } from '../../domain/fence.ts'
import { createAppendOnlyFile } from './append-only-file.ts'

const entryLine = z.object({
  entry: z.object({
    ...{ id: z.string(), region: z.string(), fence: z.string(), kind: z.enum(FENCE_KINDS), event: z.enum(FENCE_EVENTS), at: z.string() },
    ...{ by: z.string(), host: z.string(), runId: z.string().nullable(), reason: z.string().nullable(), detail: z.json() },
  }),
})
const handedOverLine = z.object({ handedOver: z.array(z.string()) })
const refusedLine = z.object({ refused: z.object({ id: z.string(), why: z.string() }) })

/** What stands in the file, oldest first. */
export type KeptEntries = {
  readonly all: readonly FenceEntry[]
  /** To be handed over. */
  readonly pending: readonly FenceEntry[]
  /** Never to be handed over. */
  readonly aside: readonly AsideEntry[]
}

/** The fence log of one service on this machine. Lines are only added: `handedOver` says what need not be sent again, `refused` what must not. */
export type FenceJournalFile = {
  readonly path: string
  keep(entries: readonly FenceEntry[]): Promise<void>
  handedOver(entries: readonly FenceEntry[]): Promise<void>
  refused(entry: FenceEntry, why: string): Promise<void>
  /** @throws `fence-failed` when it cannot be read, as all of them when it cannot be written */
  read(): Promise<KeptEntries>
}

export function createFenceJournalFile(folder: string, service: string): FenceJournalFile {
  const file = createAppendOnlyFile(join(folder, `${encodeURIComponent(service)}.fences.jsonl`))
  const append = async (lines: Parameters<typeof file.append>[0]) => await keeping(file.path, () => file.append(lines))
  return {
    path: file.path,
    keep: async entries => await append(entries.map(entry => ({ entry }))),
    handedOver: async entries => await append([{ handedOver: entries.map(entry => entry.id) }]),
    refused: async ({ id }, why) => await append([{ refused: { id, why } }]),
    read: async () => {
      const lines = await keeping(file.path, () => file.read())
      const all: FenceEntry[] = lines.flatMap(line => entryLine.safeParse(line).data?.entry ?? [])
      const handedOver = new Set(lines.flatMap(line => handedOverLine.safeParse(line).data?.handedOver ?? []))
      const refused = new Map(
        lines.flatMap(line => {
          const said = refusedLine.safeParse(line).data?.refused
          return said === undefined ? [] : [[said.id, said.why] as const]
        }),
      )
      const left = all.filter(entry => !handedOver.has(entry.id))
      return {
        all,
        pending: left.filter(entry => !refused.has(entry.id)),
        aside: left.flatMap(entry => {
          const why = refused.get(entry.id)
          return why === undefined ? [] : [{ entry, why }]
        }),
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
