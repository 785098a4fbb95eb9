import type { Acknowledged } from './acknowledged.ts'
import { grouped } from './grouped.ts'

/** How long nobody acknowledged a write of a key while it moved, as a caller saw it. */
export type WriteStop = {
  readonly key: string
  readonly from: string
  readonly to: string
  readonly fromEpoch: number
  readonly toEpoch: number
  readonly lastAckAtMs: number
  readonly firstAckAtMs: number
  readonly stopMs: number
}

/** One for each change of epoch, in order of time: last acknowledgement under the old one, first under the new one. */
export function writeStops(acks: readonly Acknowledged[]): readonly WriteStop[] {
  const byKey = grouped(
    acks.filter(a => !a.replayed),
    a => a.key,
  )
  return [...byKey.values()].flatMap(stopsOfKey).sort((a, b) => a.lastAckAtMs - b.lastAckAtMs)
}

function stopsOfKey(acks: readonly Acknowledged[]): readonly WriteStop[] {
  const epochs = [...new Set(acks.map(a => a.epoch))].sort((a, b) => a - b)
  return epochs.slice(1).flatMap((toEpoch, i) => {
    const fromEpoch = epochs[i] ?? 0
    const last = newest(acks.filter(a => a.epoch === fromEpoch))
    const first = oldest(acks.filter(a => a.epoch === toEpoch))
    if (last === undefined || first === undefined) return []
    const [lastAckAtMs, firstAckAtMs] = [last.ackedAtMs, first.ackedAtMs]
    const stopMs = firstAckAtMs - lastAckAtMs
    return [{ key: last.key, from: last.region, to: first.region, fromEpoch, toEpoch, lastAckAtMs, firstAckAtMs, stopMs }]
  })
}

function newest(acks: readonly Acknowledged[]): Acknowledged | undefined {
  return acks.reduce<Acknowledged | undefined>((best, a) => (best === undefined || a.ackedAtMs > best.ackedAtMs ? a : best), undefined)
}

function oldest(acks: readonly Acknowledged[]): Acknowledged | undefined {
  return acks.reduce<Acknowledged | undefined>((best, a) => (best === undefined || a.ackedAtMs < best.ackedAtMs ? a : best), undefined)
}
