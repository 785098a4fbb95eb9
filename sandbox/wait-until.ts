import { setTimeout as wait } from 'node:timers/promises'

/** Waits for a condition, looking every 10 ms; false when the deadline passed first. */
export async function waitUntil(condition: () => boolean | Promise<boolean>, timeoutMs: number): Promise<boolean> {
  const end = performance.now() + timeoutMs
  for (;;) {
    if (await condition()) return true
    if (performance.now() >= end) return false
    await wait(10)
  }
}
