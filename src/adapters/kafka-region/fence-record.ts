import { HomeregionError } from '../../domain/errors.ts'
import type { Json } from '../../domain/evidence.ts'
import type { FenceNote } from '../../domain/fence.ts'
import { type DenyBinding, union, without } from './deny-binding.ts'

/** What is on record of a Kafka fence while it stands: enough to bring back exactly what was there. */
export type FenceRecord = {
  /** Bindings that are ours to delete. On record before they are made: after a crash some of them may never have been. */
  readonly added: readonly DenyBinding[]
  /** Bindings the fence wants that stood already: somebody else's, and they stay. */
  readonly found: readonly DenyBinding[]
  /** What stood on the other regions' clusters before; null where it was not read. */
  readonly elsewhere: Readonly<Record<string, readonly DenyBinding[] | null>>
}

export const NOTHING_ON_RECORD: FenceRecord = { added: [], found: [], elsewhere: {} }

export function recordOf(note: FenceNote | null): FenceRecord {
  return note === null ? NOTHING_ON_RECORD : readRecord(note.former)
}

function readRecord(json: Json): FenceRecord {
  const former = asObject(json)
  return {
    added: asBindings(former['added']),
    found: asBindings(former['found']),
    elsewhere: Object.fromEntries(
      Object.entries(asObject(former['elsewhere'])).map(([region, bindings]) => [region, bindings === null ? null : asBindings(bindings)]),
    ),
  }
}

export function toJson(record: FenceRecord): Json {
  return record
}

/**
 * One record of those that several machines made without hearing of each other, oldest first: a DENY that one of them found may be what
 * another had made a moment before.
 */
export function mergeFormer(formers: readonly [Json, ...Json[]]): Json {
  const records: FenceRecord[] = []
  for (const former of formers) {
    try {
      records.push(readRecord(former))
    } catch {
      // Told by whoever goes by it; a status can still be shown.
      return former
    }
  }
  const added = records.reduce<readonly DenyBinding[]>((all, r) => union(all, r.added), [])
  const found = records.reduce<readonly DenyBinding[]>((all, r) => union(all, r.found), [])
  // Who looked first saw the other clusters before anything of this could be copied there.
  const elsewhere = Object.assign({}, ...records.toReversed().map(r => r.elsewhere)) as FenceRecord['elsewhere']
  return toJson({ added, found: without(found, added), elsewhere })
}

function asObject(value: Json | undefined): Readonly<Record<string, Json>> {
  if (typeof value === 'object' && value !== null && !Array.isArray(value)) return value as Readonly<Record<string, Json>>
  throw unreadable()
}

function asBindings(value: Json | undefined): readonly DenyBinding[] {
  if (!Array.isArray(value)) throw unreadable()
  return (value as readonly Json[]).map(entry => {
    const { resource, name, principal } = asObject(entry)
    if ((resource !== 'topic' && resource !== 'transactional-id') || typeof name !== 'string' || typeof principal !== 'string') {
      throw unreadable()
    }
    return { resource, name, principal }
  })
}

/** To go on without it would be to delete somebody else's bindings, or to leave ours for ever. */
function unreadable(): HomeregionError {
  return new HomeregionError('fence-failed', {
    fact: 'what is on record of the Kafka fence is not what this program writes',
    state: 'Nothing was changed.',
    next: 'look at the DENY bindings with kafka-acls --list, and at the version of homeregion that wrote the record',
  })
}
