import { type NewEntry, newEntry } from '../adapters/files/fence-entry.ts'
import { createFenceNotes, type MergeFormer } from '../adapters/files/fence-notes.ts'
import { createLoggedFence } from '../adapters/files/logged-fence.ts'
import { createExecFence } from '../adapters/hooks/exec-fence.ts'
import { createHttpFence } from '../adapters/hooks/http-fence.ts'
import { createKafkaFence } from '../adapters/kafka-region/fence.ts'
import { mergeFormer } from '../adapters/kafka-region/fence-record.ts'
import { createBoundaryFence } from '../adapters/postgres-region/fences/boundary.ts'
import { createCredentialsFence } from '../adapters/postgres-region/fences/credentials.ts'
import { provedOnEveryPath } from '../adapters/postgres-region/fences/path-proof.ts'
import { createReadOnlyFence } from '../adapters/postgres-region/fences/read-only.ts'
import { createSink, SINK_TIMEOUT_MS } from '../adapters/sinks/sink.ts'
import { systemClock } from '../adapters/system/clock.ts'
import type { Secrets } from '../adapters/system/secrets.ts'
import type { Config, FenceConfig, RegionConfig } from '../domain/config.ts'
import type { Fence, FenceJournal } from '../domain/fence.ts'
import type { Holder } from '../domain/journal.ts'
import type { FaultPoint, Hooks } from '../domain/ports.ts'

export type FenceParts = {
  readonly config: Config
  readonly secrets: Secrets
  readonly env: Readonly<Record<string, string | undefined>>
  readonly journal: FenceJournal
  readonly hooks: Hooks
  readonly fault: FaultPoint
  readonly holder: Holder
}

/** A region's own boundary and the fences configured for it, each of which tells the fence log what happens to it. */
export function composeFences(region: RegionConfig, parts: FenceParts): readonly Fence[] {
  const boundary = createBoundaryFence(region, parts.config, parts.secrets, parts.fault)
  const fences = [boundary, ...region.fences.flatMap(fence => composed(region, fence, parts))]
  return logged(provedOnEveryPath(fences, region, parts.config, parts.secrets, systemClock), parts)
}

/** The credentials fences of a region for some of their roles only; those without any of them are left out. */
export function composeRotations(region: RegionConfig, roles: readonly string[] | null, parts: FenceParts): readonly Fence[] {
  const fences = region.fences.flatMap((fence): readonly FenceConfig[] => {
    if (fence.kind !== 'credentials') return []
    const mine = fence.roles.filter(({ role }) => roles === null || roles.includes(role))
    return mine.length === 0 ? [] : [{ ...fence, roles: mine }]
  })
  return logged(
    fences.flatMap(fence => composed(region, fence, parts)),
    parts,
  )
}

function logged(fences: readonly Fence[], { journal, holder }: FenceParts): readonly Fence[] {
  return fences.map(fence => createLoggedFence(fence, journal, newEntry(holder.host)))
}

function composed(region: RegionConfig, fence: FenceConfig, parts: FenceParts): readonly Fence[] {
  const { config, env, journal, hooks, secrets, fault, holder } = parts
  const entry: NewEntry = newEntry(holder.host)
  const noted = { region: region.name, fence: fence.name, kind: fence.kind, by: holder.user }
  const notes = (merge?: MergeFormer) => createFenceNotes(journal, noted, entry, merge)
  const now = () => systemClock.now()
  switch (fence.kind) {
    case 'exec':
      return [createExecFence(region, fence, hooks, notes(), fault, now)]
    case 'http':
      return [createHttpFence(region, fence, secrets, notes(), fault, now)]
    case 'read-only':
      return [createReadOnlyFence(region, fence, config, secrets, fault)]
    case 'credentials':
      return [
        createCredentialsFence(
          region,
          fence,
          config,
          secrets,
          sink => createSink(sink, { secrets, env, timeoutMs: SINK_TIMEOUT_MS }),
          fault,
        ),
      ]
    case 'kafka':
      return [createKafkaFence(region, fence, config, secrets, notes(mergeFormer), fault)]
  }
}
