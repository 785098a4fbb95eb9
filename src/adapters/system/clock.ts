import { setTimeout as wait } from 'node:timers/promises'
import type { Clock } from '../../domain/ports.ts'

export const systemClock: Clock = {
  now: () => new Date().toISOString(),
  monotonicMs: () => performance.now(),
  sleep: async (ms, signal) => {
    await wait(ms, undefined, signal === undefined ? {} : { signal }).catch((error: unknown) => {
      if (!(error instanceof Error && error.name === 'AbortError')) throw error
    })
  },
}
