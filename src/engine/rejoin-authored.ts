import { HomeregionError } from '../domain/errors.ts'
import type { Evidence } from '../domain/evidence.ts'
import type { ActionUse, CheckUse, Step } from '../domain/runbook.ts'
import { declined, type Rejoining } from './rejoining.ts'
import { describeEvidence } from './segments.ts'

/** Between two looks at a gate that has not passed, and at what is watched. */
const PERIOD_MS = 1_000

/**
 * A step that an author put between the fixed ones. One that does something or asks somebody is done once in an exile; one that only looks looks
 * each time. A process that dies between the command and its record runs it again: HOMEREGION_EXILE and HOMEREGION_STEP are the same then.
 */
export async function runAuthored(rejoining: Rejoining, step: Step): Promise<void> {
  const { parts, region } = rejoining
  const once = step.action !== null || step.confirm !== null
  if (once && parts.done.includes(step.id)) return parts.tell(`${step.id}: done before in this exile`)
  if (step.confirm !== null && !(await parts.confirm(step))) throw declined(region, step)
  if (step.action !== null) await act(rejoining, step, step.action)
  await passLooks(rejoining, step)
  if (once) {
    await parts.fault('rejoin:authored')
    await parts.controlPlane.noteRejoinStep(region, step.id)
  }
  parts.tell(`${step.id}: ${step.title}`)
}

async function act({ parts, region }: Rejoining, step: Step, use: ActionUse): Promise<void> {
  const { hooks, clock, controlPlane, tell } = parts
  const [exile] = await controlPlane.exiles(region)
  const values = { region, step: step.id, exile: exile?.id ?? '', runs: (exile?.runIds ?? []).join(' ') }
  switch (use.kind) {
    case 'exec':
    case 'notify': {
      const environment = Object.fromEntries(Object.entries(values).map(([name, value]) => [`HOMEREGION_${name.toUpperCase()}`, value]))
      const ended = await hooks.run(use.command, environment, use.timeoutMs).catch((error: unknown) => {
        // Nobody waits at a notification that fails.
        if (use.kind === 'exec') throw error
        return { code: -1, output: error instanceof Error ? error.message : String(error) }
      })
      if (ended.code === 0) return
      if (use.kind === 'notify') return tell(`${step.id}: the notification failed: ${ended.output.slice(-300)}`)
      throw refused(region, step, `${use.command[0] ?? 'the command'} ended with exit code ${ended.code}: ${ended.output.slice(-300)}`)
    }
    case 'http': {
      const { status } = await hooks.request(use.method, use.url, values, use.timeoutMs)
      if (status === use.expectStatus) return
      throw refused(region, step, `${use.method} ${use.url} answered ${status}, expected ${use.expectStatus}`)
    }
    case 'pause':
      return await clock.sleep(use.forMs)
    default:
      throw new RangeError(`${use.kind} is no step between those of a rejoin`)
  }
}

/** Waits for the gate of a step, then watches what it watches: both say no by an error, and the same command looks again. */
export async function passLooks(rejoining: Rejoining, step: Step): Promise<void> {
  const { parts, region } = rejoining
  const look = async (uses: readonly CheckUse[]) => await parts.look(step, uses, await rejoining.taken())
  const open = (evidence: readonly Evidence[]) => evidence.filter(e => e.verdict !== 'pass')
  if (step.gate.length > 0) {
    const started = parts.clock.monotonicMs()
    for (;;) {
      const blocked = open(await look(step.gate))
      if (blocked.length === 0) break
      const over = parts.clock.monotonicMs() - started >= step.withinMs
      if (over || parts.watcher.interrupted()) throw refused(region, step, describeEvidence(blocked))
      await parts.clock.sleep(PERIOD_MS)
    }
  }
  if (step.watch.length === 0) return
  const started = parts.clock.monotonicMs()
  while (parts.clock.monotonicMs() - started < step.forMs) {
    const blocked = open(await look(step.watch))
    if (blocked.length > 0 || parts.watcher.interrupted()) throw refused(region, step, describeEvidence(blocked))
    await parts.clock.sleep(PERIOD_MS)
  }
}

function refused(region: string, { id }: Step, fact: string): HomeregionError {
  return new HomeregionError('check-refused', {
    fact: `step ${id}: ${fact === '' ? 'interrupted' : fact}`,
    state: `${region} stays in exile; what was done before is on record.`,
    next: `homeregion rejoin ${region} --reason TEXT`,
  })
}
