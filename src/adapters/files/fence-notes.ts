import { z } from 'zod'
import type { Json } from '../../domain/evidence.ts'
import type { FenceEntry, FenceJournal, FenceNote, FenceNotes } from '../../domain/fence.ts'
import type { NewEntry } from './fence-entry.ts'

const noteDetail = z.object({
  note: z
    .object({
      state: z.enum(['applying', 'applied', 'lifting']),
      cause: z.object({ reason: z.string(), by: z.string(), runId: z.string().nullable() }),
      // Older notes have none.
      asked: z.number().default(0),
      since: z.string(),
      former: z.json(),
    })
    .nullable(),
  /** Of a lifting: ids of the notes it knew of. What it did not know of it has not taken back. */
  ended: z.array(z.string()).optional(),
})

/** Makes one out of what each note has to bring back, oldest first. */
export type MergeFormer = (formers: readonly [Json, ...Json[]]) => Json

type Standing = { readonly id: string; readonly note: FenceNote & { readonly asked: number } }

/**
 * The notes of one fence, kept as entries of the fence log: on this machine first, then in the control plane. Machines that could not hear of
 * each other each make their own, so that not the newest alone counts but all that no lifting knew of.
 */
export function createFenceNotes(
  journal: FenceJournal,
  fence: Pick<FenceEntry, 'region' | 'fence' | 'kind' | 'by'>,
  entry: NewEntry,
  merge: MergeFormer = formers => formers.at(-1) ?? null,
): FenceNotes {
  let known: readonly string[] | null = null
  return {
    read: async () => {
      const standing = standingNotes(await journal.notes(fence.region, fence.fence))
      known = standing.map(s => s.id)
      const [first, ...others] = standing.map(s => s.note)
      if (first === undefined) return null
      // Notes of another machine may arrive late: the newest is the one of the newest wish.
      const newest = others.reduce((a, b) => (b.asked >= a.asked ? b : a), first)
      return { ...newest, former: merge([first.former, ...others.map(n => n.former)]) }
    },
    write: async (note: FenceNote | null) => {
      const cause = note?.cause ?? { by: fence.by, runId: null, reason: null }
      const ended = known === null ? {} : { ended: known }
      const detail = note === null ? { note, ...ended } : { note: { ...note, cause: { ...note.cause } } }
      const made = entry({ ...fence, event: 'noted', by: cause.by, runId: cause.runId, reason: cause.reason, detail })
      await journal.keep([made])
      if (note === null) known = []
      else if (known !== null) known = [...known, made.id]
      await journal.handOver()
    },
  }
}

function standingNotes(entries: readonly FenceEntry[]): readonly Standing[] {
  const read = entries.flatMap(entry => {
    const detail = noteDetail.safeParse(entry.detail).data
    return detail === undefined ? [] : [{ id: entry.id, ...detail }]
  })
  const ended = new Set(read.flatMap(r => (r.note === null ? (r.ended ?? []) : [])))
  // A lifting that does not say what it knew of ends all before it.
  const begin = read.findLastIndex(r => r.note === null && r.ended === undefined) + 1
  return read.slice(begin).flatMap(({ id, note }) => (note === null || ended.has(id) ? [] : [{ id, note }]))
}
