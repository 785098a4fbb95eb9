import { z } from 'zod'
import type { FenceEntry, FenceJournal, FenceNote, FenceNotes } from '../../domain/fence.ts'
import type { NewEntry } from './fence-entry.ts'

const noteDetail = z.object({
  note: z
    .object({
      state: z.enum(['applying', 'applied', 'lifting']),
      cause: z.object({ reason: z.string(), by: z.string(), runId: z.string().nullable() }),
      since: z.string(),
      former: z.json(),
    })
    .nullable(),
})

/** The notes of one fence, kept as entries of the fence log: on this machine first, then in the control plane. */
export function createFenceNotes(
  journal: FenceJournal,
  fence: Pick<FenceEntry, 'region' | 'fence' | 'kind' | 'by'>,
  entry: NewEntry,
): FenceNotes {
  return {
    read: async () => noteDetail.safeParse((await journal.newestNote(fence.region, fence.fence))?.detail).data?.note ?? null,
    write: async (note: FenceNote | null) => {
      const cause = note?.cause ?? { by: fence.by, runId: null, reason: null }
      const detail = note === null ? { note } : { note: { ...note, cause: { ...note.cause } } }
      await journal.keep([entry({ ...fence, event: 'noted', by: cause.by, runId: cause.runId, reason: cause.reason, detail })])
      await journal.handOver()
    },
  }
}
