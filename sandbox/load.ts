import { randomBytes } from 'node:crypto'
import { createWriteStream, mkdirSync } from 'node:fs'
import { dirname } from 'node:path'
import { setTimeout as wait } from 'node:timers/promises'
import type { Acknowledged } from './acknowledged.ts'

// What a load returns, for those who start one.
export type { Acknowledged } from './acknowledged.ts'

import { createLoadClient, type LoadClient } from './load-client.ts'
import { type WriteStop, writeStops } from './write-stops.ts'

export type Refused = {
  readonly key: string
  readonly region: string
  readonly error: string
  readonly sqlstate: string | null
  readonly atMs: number
}

export type LoadOptions = {
  readonly services: readonly { readonly region: string; readonly url: string }[]
  readonly tenants: readonly string[]
  /** Writes begun per second, whatever the answers take. */
  readonly ratePerSecond?: number
  /** Writers that each begin a write when their last one is acknowledged. Default 4; with a rate, the most that may be under way (default 128). */
  readonly concurrency?: number
  readonly accountsPerTenant?: number
  /** Between two rounds of asking every region. Default 1 ms: the write stop is measured through it. */
  readonly backoffMs?: number
  /** Region tried first. Default: the first service. */
  readonly home?: string
  /** JSONL file that acknowledgements are appended to. */
  readonly file?: string
  readonly onAck?: (ack: Acknowledged) => void
}

export interface Load {
  readonly acks: readonly Acknowledged[]
  /** The newest ones; `refusalCount` counts all. */
  readonly refusals: readonly Refused[]
  readonly refusalCount: number
  /** Writes whose outcome nobody knows: given up at the stop while no region had answered. */
  readonly unsettled: readonly string[]
  writeStops(): readonly WriteStop[]
  /** Begins no more writes, waits for those under way, at most `graceMs`, and closes the file. */
  stop(graceMs?: number): Promise<void>
}

const ANSWER_TIMEOUT_MS = 2000
const BACKOFF_MS = 1
const UNKNOWN_BACKOFF_MS = 10
const REFUSALS_KEPT = 10_000

export function startLoad(options: LoadOptions): Load {
  const { services, tenants } = options
  const [firstService] = services
  if (firstService === undefined || tenants.length === 0) throw new RangeError('a load needs a service and a tenant')
  const client = createLoadClient(ANSWER_TIMEOUT_MS)
  const acks: Acknowledged[] = []
  const refusals: Refused[] = []
  const unsettled: string[] = []
  let refusalCount = 0
  const believed = new Map<string, string>()
  const run = randomBytes(4).toString('hex')
  const stopping = new AbortController()
  const givingUp = new AbortController()
  let sequence = 0
  if (options.file !== undefined) mkdirSync(dirname(options.file), { recursive: true })
  const file = options.file === undefined ? null : createWriteStream(options.file, { flags: 'a' })

  const urlOf = (region: string) => services.find(s => s.region === region)?.url ?? firstService.url
  const otherThan = (region: string) => services.find(s => s.region !== region)?.region ?? region

  const acknowledge = (ack: Acknowledged) => {
    acks.push(ack)
    believed.set(ack.key, ack.replayed ? (believed.get(ack.key) ?? ack.region) : ack.region)
    file?.write(`${JSON.stringify(ack)}\n`)
    options.onAck?.(ack)
  }

  const one = async (loadClient: LoadClient): Promise<void> => {
    sequence += 1
    const number = sequence
    const key = tenants[number % tenants.length] ?? ''
    const accountId = `account-${Math.floor(number / tenants.length) % (options.accountsPerTenant ?? 3)}`
    const order = { tenant: key, accountId, idempotencyKey: `${run}-${number}`, epoch: null, address: `street ${number}` }
    const sentAtMs = performance.now()
    let region = believed.get(key) ?? options.home ?? firstService.region
    for (let attempts = 1; !givingUp.signal.aborted; attempts += 1) {
      const lastSentAtMs = performance.now()
      const answer = await loadClient.write(urlOf(region), order)
      if (answer.kind === 'acknowledged') {
        const { version, epoch, replayed } = answer
        const ackedAtMs = performance.now()
        acknowledge({
          idempotencyKey: order.idempotencyKey,
          key,
          accountId,
          version,
          epoch,
          region: answer.region,
          replayed,
          sentAtMs,
          lastSentAtMs,
          ackedAtMs,
          attempts,
        })
        return
      }
      if (answer.kind === 'refused') {
        refusalCount += 1
        refusals.push({ key, region, error: answer.error, sqlstate: answer.sqlstate, atMs: performance.now() })
        if (refusals.length > REFUSALS_KEPT) refusals.shift()
      }
      // The same idempotency key at once in the other region: whichever commits it, it is committed once.
      region = otherThan(region)
      if (answer.kind === 'unknown') await wait(UNKNOWN_BACKOFF_MS)
      else if (attempts % services.length === 0) await wait((options.backoffMs ?? BACKOFF_MS) + Math.random())
    }
    unsettled.push(order.idempotencyKey)
  }

  const closedLoop = async (): Promise<void> => {
    while (!stopping.signal.aborted) await one(client)
  }

  const openLoop = async (ratePerSecond: number): Promise<void> => {
    const underWay = new Set<Promise<void>>()
    const most = options.concurrency ?? 128
    const began = performance.now()
    for (let begun = 0; !stopping.signal.aborted; ) {
      const due = Math.floor(((performance.now() - began) * ratePerSecond) / 1000)
      for (; begun < due && underWay.size < most; begun += 1) {
        const write: Promise<void> = one(client).finally(() => underWay.delete(write))
        underWay.add(write)
      }
      // Writes that found no room are not made up for.
      begun = Math.max(begun, due - most)
      await wait(Math.max(1, 500 / ratePerSecond), undefined, { signal: stopping.signal }).catch(() => undefined)
    }
    await Promise.all(underWay)
  }

  const running =
    options.ratePerSecond === undefined
      ? Promise.all(Array.from({ length: options.concurrency ?? 4 }, closedLoop)).then(() => undefined)
      : openLoop(options.ratePerSecond)

  return {
    acks,
    refusals,
    unsettled,
    get refusalCount() {
      return refusalCount
    },
    writeStops: () => writeStops(acks),
    stop: async (graceMs = 5000) => {
      stopping.abort()
      const timer = setTimeout(() => givingUp.abort(), graceMs)
      await running
      clearTimeout(timer)
      client.close()
      if (file !== null) await new Promise<void>(resolve => file.end(() => resolve()))
    },
  }
}
