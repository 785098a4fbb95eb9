import { randomUUID } from 'node:crypto'
import { hostname } from 'node:os'
import { z } from 'zod'
import type { Json } from '../../domain/evidence.ts'
import type { FenceJournal, FenceKind, FenceNote, FenceNotes } from '../../domain/fence.ts'

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
export function createFenceNotes(journal: FenceJournal, fence: { region: string; name: string; kind: FenceKind }, by: string): FenceNotes {
  return {
    read: async () => {
      const entry = await journal.newestNote(fence.region, fence.name)
      const parsed = noteDetail.safeParse(entry?.detail)
      return parsed.success ? (parsed.data.note as FenceNote | null) : null
    },
    write: async note => {
      await journal.record([
        {
          id: randomUUID(),
          region: fence.region,
          fence: fence.name,
          kind: fence.kind,
          event: 'noted',
          at: new Date().toISOString(),
          by: note?.cause.by ?? by,
          host: hostname(),
          runId: note?.cause.runId ?? null,
          reason: note?.cause.reason ?? null,
          detail: { note: note as unknown as Json },
        },
      ])
    },
  }
}
