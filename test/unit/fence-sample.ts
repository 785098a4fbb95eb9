import type { FenceEntry, FenceNote, FenceNotes } from '../../src/domain/fence.ts'

export const CAUSE = { reason: 'the night', by: 'ann@laptop', runId: null }

let ids = 0

export function sampleEntry(changes: Partial<FenceEntry> = {}): FenceEntry {
  ids += 1
  return {
    ...{ id: `00000000-0000-4000-8000-${String(ids).padStart(12, '0')}`, region: 'region-a', fence: 'boundary', kind: 'boundary' as const },
    ...{
      event: 'applied' as const,
      at: '2026-01-02T03:04:05.000Z',
      by: CAUSE.by,
      host: 'laptop',
      runId: null,
      reason: CAUSE.reason,
      detail: null,
    },
    ...changes,
  }
}

/** Notes that live as long as the test, with everything that was written. */
export function createMemoryNotes(): FenceNotes & { readonly written: (FenceNote | null)[] } {
  const written: (FenceNote | null)[] = []
  return {
    written,
    read: () => Promise.resolve(written.at(-1) ?? null),
    write: note => {
      written.push(note)
      return Promise.resolve()
    },
  }
}
