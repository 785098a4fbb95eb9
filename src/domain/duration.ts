const UNIT_MS = { ms: 1, s: 1_000, m: 60_000, h: 3_600_000 } as const

/** A whole number with its unit: `500ms`, `30s`, `5m`, `2h`. A bare number is refused, because nobody can tell its unit. */
export const DURATION_PATTERN = /^(\d{1,9})(ms|s|m|h)$/

/** Milliseconds, or null when the text is not a duration. */
export function parseDuration(text: string): number | null {
  const found = DURATION_PATTERN.exec(text)
  if (found === null) return null
  return Number(found[1]) * UNIT_MS[found[2] as keyof typeof UNIT_MS]
}

/** The shortest exact way to write it: 90_000 is `90s`, 120_000 is `2m`. */
export function showDuration(ms: number): string {
  if (ms === 0) return '0s'
  const unit = (['h', 'm', 's'] as const).find(name => ms % UNIT_MS[name] === 0) ?? 'ms'
  return `${ms / UNIT_MS[unit]}${unit}`
}

/** A duration as an operator reads it: `340 ms`, `1.2 s`, `3 min 4 s`, `2 h 5 min`. */
export function formatMs(ms: number): string {
  if (ms < 1000) return `${Math.round(ms)} ms`
  if (ms < 59_950) return `${(ms / 1000).toFixed(1)} s`
  const seconds = Math.round(ms / 1000)
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ${seconds % 60} s`
  const minutes = Math.round(seconds / 60)
  return `${Math.floor(minutes / 60)} h ${minutes % 60} min`
}
