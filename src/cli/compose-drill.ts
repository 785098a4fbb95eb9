import { createFarConsumer } from '../adapters/postgres-region/far-count.ts'
import type { Config } from '../domain/config.ts'
import type { FarConsumer } from '../domain/far-count.ts'
import { composeSecrets } from './compose-children.ts'

/** What a drill counts with, beside the world that every verb has. */
export function composeFarConsumer(config: Config, env: Readonly<Record<string, string | undefined>>): FarConsumer {
  return createFarConsumer(config, composeSecrets(config, env))
}
