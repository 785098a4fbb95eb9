import { setTimeout as wait } from 'node:timers/promises'
import { KEYS } from '../../../sandbox/layout.ts'
import { type Load, startLoad } from '../../../sandbox/load.ts'
import { type Findings, holds } from '../../../sandbox/recorder.ts'
import { createSandbox } from '../../../sandbox/sandbox.ts'
import { verifyAcks } from '../../../sandbox/verify-acks.ts'
import { HomeregionError } from '../../domain/errors.ts'
import type { CliContext } from '../context.ts'

export type LoadFlags = {
  readonly dir?: string
  readonly tenant?: readonly string[]
  readonly rate?: string
  readonly writers: string
  readonly for?: string
  readonly file?: string
}

export async function sandboxLoad(context: CliContext, flags: LoadFlags): Promise<void> {
  const format = context.format('json')
  const seconds = flags.for === undefined ? null : count('--for', flags.for)
  const running = await createSandbox(flags.dir === undefined ? {} : { dir: flags.dir }).running()
  const load = startLoad({
    services: running.services,
    tenants: flags.tenant ?? KEYS,
    concurrency: count('--writers', flags.writers),
    ...(flags.rate === undefined ? {} : { ratePerSecond: count('--rate', flags.rate) }),
    ...(flags.file === undefined ? {} : { file: flags.file }),
  })
  context.err.line(seconds === null ? 'writing; Ctrl-C ends it' : `writing for ${seconds} s`)
  await untilStopped(context, load, seconds)
  await load.stop()
  const findings = await verifyAcks(running, load.acks)
  if (format === 'json') context.out.line(JSON.stringify(report(load, findings)))
  else print(context, load, findings)
  if (!holds(findings)) context.exit('unexpected')
}

function report(load: Load, findings: Findings): unknown {
  return { ...findings, refused: load.refusalCount, unsettled: load.unsettled.length, writeStops: load.writeStops() }
}

function print(context: CliContext, load: Load, findings: Findings): void {
  const { out } = context
  out.line(
    `acknowledged ${findings.acknowledged} writes; refused and tried again ${load.refusalCount}; outcome unknown ${load.unsettled.length}`,
  )
  for (const stop of load.writeStops()) out.line(`${stop.key}: ${stop.from} -> ${stop.to}, write stop ${stop.stopMs.toFixed(1)} ms`)
  const kinds = ['lost', 'doubled', 'versionGaps', 'overlaps', 'epochJumps'] as const
  out.line(kinds.map(kind => `${kind} ${findings[kind].length}`).join(', '))
  for (const line of kinds.flatMap(kind => findings[kind]).slice(0, SHOWN)) out.line(`  ${line}`)
}

const SHOWN = 20

/** Ends at SIGINT, SIGTERM or after `seconds`; on a terminal it tells every second that it is alive. */
async function untilStopped(context: CliContext, load: Load, seconds: number | null): Promise<void> {
  const stop = new AbortController()
  const end = () => stop.abort()
  process.once('SIGINT', end)
  process.once('SIGTERM', end)
  const deadline = performance.now() + (seconds ?? Number.POSITIVE_INFINITY) * 1000
  while (!stop.signal.aborted && performance.now() < deadline) {
    await wait(Math.min(1000, deadline - performance.now()), undefined, { signal: stop.signal }).catch(() => undefined)
    if (context.err.isTerminal) context.err.line(`${load.acks.length} acknowledged, ${load.refusalCount} refused and tried again`)
  }
  process.off('SIGINT', end)
  process.off('SIGTERM', end)
}

function count(option: string, text: string): number {
  const value = Number(text)
  if (Number.isInteger(value) && value > 0 && value <= 100_000) return value
  throw new HomeregionError('usage', {
    fact: `${option} takes a whole number from 1 to 100000, not ${JSON.stringify(text)}`,
    next: 'homeregion sandbox load --help',
  })
}
