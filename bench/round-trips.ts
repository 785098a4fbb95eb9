import type { WriteStop } from '../sandbox/write-stops.ts'
import type { Burst } from './delaying-proxy.ts'

// What leaves within this long of the burst before it was asked for at the same time: one round trip serves it all.
const TOGETHER_MS = 4

/** One line for each moment at which the command line asked for something during the write stop: when, whom, and what. */
export function traceLines(bursts: readonly Burst[], stop: WriteStop): readonly string[] {
  // The drain itself left a little before the last acknowledged write.
  const drain = bursts.findLast(b => b.asked.includes('drain') && b.atMs <= stop.firstAckAtMs)
  if (drain === undefined) return []
  const during = bursts.filter(b => b.atMs >= drain.atMs && b.atMs <= stop.firstAckAtMs && b.asked.length > 0)
  const moments: { atMs: number; asked: Map<string, number> }[] = []
  let previousMs = Number.NEGATIVE_INFINITY
  for (const burst of during) {
    if (burst.atMs - previousMs > TOGETHER_MS) moments.push({ atMs: burst.atMs, asked: new Map() })
    previousMs = burst.atMs
    const text = `${burst.server}: ${burst.asked.join('+')}`
    const asked = moments.at(-1)?.asked
    asked?.set(text, (asked.get(text) ?? 0) + 1)
  }
  return moments.map(({ atMs, asked }, i) => {
    const what = [...asked].map(([text, times]) => (times === 1 ? text : `${text} (${times}x)`)).join('; ')
    return `${String(i + 1).padStart(3)}  ${(atMs - stop.lastAckAtMs).toFixed(1).padStart(8)}  ${what}`
  })
}
