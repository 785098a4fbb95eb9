import type { Engine } from './context.ts'

/** What a call answers, or `otherwise` where it fails or takes longer than there is patience. */
export async function inTime<T>({ clock }: Pick<Engine, 'clock'>, patienceMs: number, call: Promise<T>, otherwise: T): Promise<T> {
  const enough = new AbortController()
  const late = clock.sleep(patienceMs, enough.signal).then(() => otherwise)
  try {
    return await Promise.race([call.catch(() => otherwise), late])
  } finally {
    enough.abort()
  }
}
