import { randomUUID } from 'node:crypto'
import type { FenceEntry } from '../../domain/fence.ts'

/** Makes an entry of the fence log with an id of its own, this machine and its time. */
export type NewEntry = (entry: Omit<FenceEntry, 'id' | 'at' | 'host'>) => FenceEntry

export function newEntry(host: string): NewEntry {
  return entry => ({ ...entry, id: randomUUID(), at: new Date().toISOString(), host })
}
