import { randomUUID } from 'node:crypto'
import { type EventFeed, startEventFeed } from './event-feed.ts'
import type { KafkaConnection } from './kafka-client.ts'

/** What the compacted topic says of a key; a hint for routing, no authority. */
export type Announcement = { readonly key: string; readonly homeRegion: string; readonly epoch: number }

/**
 * Reads the announcements of ownership from the beginning and goes on. The group has a name of its own and commits nothing, so it is
 * gone when the reader is. `groupPrefix`: a prefix that the login may use for groups.
 */
export function followAnnouncements(
  connection: KafkaConnection,
  options: { readonly topic: string; readonly groupPrefix: string },
  heard: (announcement: Announcement) => void,
): EventFeed {
  const groupId = `${options.groupPrefix}.announcements.${randomUUID()}`
  return startEventFeed(
    connection,
    { topic: options.topic, groupId, partitionsAtOnce: 1, settings: { 'cleanup.policy': 'compact' } },
    {
      assigned: () => undefined,
      batch: messages => {
        for (const message of messages) {
          const announcement = parseAnnouncement(message.value)
          if (announcement !== null) heard(announcement)
        }
        return Promise.resolve({ next: (messages.at(-1) ?? messages[0]).offset + 1n, committed: null })
      },
    },
  )
}

/** Null for anything that is no announcement. The boundary's NOTIFY has the same form. */
export function parseAnnouncement(value: string): Announcement | null {
  try {
    const json = JSON.parse(value) as Partial<Announcement> | null
    if (typeof json?.key !== 'string' || typeof json.homeRegion !== 'string' || typeof json.epoch !== 'number') return null
    return { key: json.key, homeRegion: json.homeRegion, epoch: json.epoch }
  } catch {
    // Somebody else's message on the topic: a hint that cannot be read is no hint.
    return null
  }
}
