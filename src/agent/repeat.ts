import type { AgentParts } from './parts.ts'
import { reasonOf } from './parts.ts'

/**
 * Does `work` again and again until the signal, one at a time, `everyMs` from start to start. What fails is said once and tried again: an agent
 * goes on whatever it meets. `work` may answer with another wait.
 */
export async function repeat(
  { clock, log }: Pick<AgentParts, 'clock' | 'log'>,
  name: string,
  everyMs: number,
  signal: AbortSignal,
  work: () => Promise<number | void>,
): Promise<void> {
  let failing: string | null = null
  while (!signal.aborted) {
    const began = clock.monotonicMs()
    let wait = everyMs
    try {
      wait = (await work()) ?? everyMs
      if (failing !== null) log(`${name}-again`)
      failing = null
    } catch (error) {
      const reason = reasonOf(error)
      if (failing !== reason) log(`${name}-failed`, { reason })
      failing = reason
    }
    await clock.sleep(Math.max(MIN_PAUSE_MS, wait - (clock.monotonicMs() - began)), signal)
  }
}

// What is late already is not done without a pause: the machine may be the reason.
const MIN_PAUSE_MS = 20
