import type { Secrets } from '../system/secrets.ts'

export type SinkContext = {
  /** Where secrets of the sinks themselves come from. */
  readonly secrets: Pick<Secrets, 'read'>
  /** Environment of the commands. */
  readonly env: Readonly<Record<string, string | undefined>>
  readonly timeoutMs: number
}
