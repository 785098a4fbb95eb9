import type { Config } from '../domain/config.ts'
import { HomeregionError } from '../domain/errors.ts'
import type { World } from './context.ts'

/** Wires the adapters of one configuration; the only file that knows them all. */
export async function compose(config: Config, env: Readonly<Record<string, string | undefined>>): Promise<World> {
  throw new HomeregionError('unexpected', {
    fact: `the adapters of ${config.service} are not wired yet (${Object.keys(env).length} variables)`,
    state: 'Nothing was changed.',
  })
}
