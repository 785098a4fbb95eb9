/** Where a key was last said to be at home. It routes requests; it authorises nothing: the boundary decides. */
export type OwnershipHint = { readonly homeRegion: string; readonly epoch: number }

export type OwnershipCache = {
  hint(key: string): OwnershipHint | null
  /** Takes the hint unless a later epoch is known already; announcements and refusals arrive in any order. */
  learn(key: string, hint: OwnershipHint): void
  readonly size: number
}

// A routing hint is some 200 bytes; the oldest are forgotten first, and asked for again.
const CAPACITY = 100_000

export function createOwnershipCache(capacity: number = CAPACITY): OwnershipCache {
  const hints = new Map<string, OwnershipHint>()
  return {
    hint: key => hints.get(key) ?? null,
    learn: (key, hint) => {
      const known = hints.get(key)
      if (known !== undefined && known.epoch > hint.epoch) return
      hints.delete(key)
      hints.set(key, hint)
      const [oldest] = hints.keys()
      if (hints.size > capacity && oldest !== undefined) hints.delete(oldest)
    },
    get size() {
      return hints.size
    },
  }
}
