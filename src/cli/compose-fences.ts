import { randomUUID } from 'node:crypto'
import { createFenceNotes, type NewEntry } from '../adapters/files/fence-notes.ts'
import { createLoggedFence } from '../adapters/files/logged-fence.ts'
import { createExecFence } from '../adapters/hooks/exec-fence.ts'
import { createHttpFence } from '../adapters/hooks/http-fence.ts'
import { systemClock } from '../adapters/system/clock.ts'
import type { Secrets } from '../adapters/system/secrets.ts'
import type { Config, FenceConfig, RegionConfig } from '../domain/config.ts'
import type { Fence, FenceJournal } from '../domain/fence.ts'
import type { Holder } from '../domain/journal.ts'
import type { FaultPoint, Hooks } from '../domain/ports.ts'

type Parts = {
  readonly config: Config
  readonly secrets: Secrets
  readonly journal: FenceJournal
  readonly hooks: Hooks
  readonly fault: FaultPoint
  readonly holder: Holder
}

/** A region's own boundary and the fences configured for it, each of which tells the fence log what happens to it. */
export function composeFences(region: RegionConfig, parts: Parts): readonly Fence[] {
  const entry = newEntry(parts.holder)
  return region.fences.flatMap(fence => composed(region, fence, parts, entry)).map(fence => createLoggedFence(fence, parts.journal, entry))
}

export function newEntry(holder: Holder): NewEntry {
  return entry => ({ ...entry, id: randomUUID(), at: systemClock.now(), host: holder.host })
}

function composed(region: RegionConfig, fence: FenceConfig, parts: Parts, entry: NewEntry): readonly Fence[] {
  const { journal, hooks, secrets, fault, holder } = parts
  const notes = createFenceNotes(journal, { region: region.name, fence: fence.name, kind: fence.kind, by: holder.user }, entry)
  const now = () => systemClock.now()
  switch (fence.kind) {
    case 'exec':
      return [createExecFence(region, fence, hooks, notes, fault, now)]
    case 'http':
      return [createHttpFence(region, fence, secrets, notes, fault, now)]
    case 'credentials':
    case 'read-only':
    case 'kafka':
      return []
  }
}
