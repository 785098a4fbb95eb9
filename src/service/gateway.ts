import type { OwnershipHint } from './ownership-cache.ts'

export type Route =
  | { readonly kind: 'local' }
  | { readonly kind: 'forward'; readonly region: string }
  | { readonly kind: 'reject'; readonly homeRegion: string }

/** A request that was forwarded once is answered where it is: two regions with stale hints would pass it on for ever. */
export const HOP_LIMIT = 1

/**
 * Where a write goes. Without a hint it is tried here: the boundary refuses it if that is wrong, and names the home.
 * `reachable`: regions this gateway can forward to.
 */
export function route(local: string, hint: OwnershipHint | null, hops: number, reachable: ReadonlySet<string>): Route {
  if (hint === null || hint.homeRegion === local) return { kind: 'local' }
  if (hops < HOP_LIMIT && reachable.has(hint.homeRegion)) return { kind: 'forward', region: hint.homeRegion }
  // After a hop the sender knew better than this cache, or both are wrong; the boundary tells.
  return hops >= HOP_LIMIT ? { kind: 'local' } : { kind: 'reject', homeRegion: hint.homeRegion }
}
