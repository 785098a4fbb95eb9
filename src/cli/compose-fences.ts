import { createFenceNotes } from '../adapters/files/fence-notes.ts'
import { createExecFence } from '../adapters/hooks/exec-fence.ts'
import { createHttpFence } from '../adapters/hooks/http-fence.ts'
import { systemClock } from '../adapters/system/clock.ts'
import type { Secrets } from '../adapters/system/secrets.ts'
import type { Config, FenceConfig, RegionConfig } from '../domain/config.ts'
import type { Fence, FenceJournal } from '../domain/fence.ts'
import type { FaultPoint, Hooks } from '../domain/ports.ts'

type Parts = {
  readonly config: Config
  readonly secrets: Secrets
  readonly journal: FenceJournal
  readonly hooks: Hooks
  readonly fault: FaultPoint
  /** This process's user, for what no cause names. */
  readonly by: string
}

/** A region's own boundary and the fences configured for it. */
export function composeFences(region: RegionConfig, parts: Parts): readonly Fence[] {
  return region.fences.flatMap(fence => composed(region, fence, parts))
}

function composed(region: RegionConfig, fence: FenceConfig, parts: Parts): readonly Fence[] {
  const { journal, hooks, secrets, fault } = parts
  const notes = createFenceNotes(journal, { region: region.name, name: fence.name, kind: fence.kind }, parts.by)
  switch (fence.kind) {
    case 'exec':
      return [createExecFence(region, fence, hooks, notes, fault, systemClock.now)]
    case 'http':
      return [createHttpFence(region, fence, secrets, notes, fault, systemClock.now)]
    case 'credentials':
    case 'read-only':
    case 'kafka':
      return []
  }
}
