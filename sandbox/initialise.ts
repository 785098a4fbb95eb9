import { createControlPlane } from '../src/adapters/control-plane/control-plane-store.ts'
import { installControlPlane } from '../src/adapters/control-plane/install.ts'
import { loadConfig } from '../src/adapters/files/config-file.ts'
import { installBoundary } from '../src/adapters/postgres-region/install.ts'
import { createRegionDatabase } from '../src/adapters/postgres-region/region-database.ts'
import { createSecrets, type Secrets } from '../src/adapters/system/secrets.ts'
import type { Config } from '../src/domain/config.ts'
import { KEYS, type Layout } from './layout.ts'

const HOME_AT_FIRST = 'region-a'

/**
 * What `homeregion init` and `homeregion key add` do, from the file that was just written. Repeatable: keys that were moved
 * meanwhile stay where they are.
 */
export async function initialise(layout: Layout, progress: (line: string) => void): Promise<void> {
  // Nothing of the caller's environment overrides the sandbox's own file.
  const env = { PATH: process.env.PATH ?? '' }
  const { config } = loadConfig({ file: layout.config, env, cwd: layout.dir, flags: {} })
  const secrets = createSecrets(env)
  await Promise.all([
    installControlPlane({ config, secrets, dryRun: false }),
    ...config.regions.map(region => installBoundary({ config, region, secrets, dryRun: false })),
  ])
  progress('control plane     installed; the write boundary stands in both regions')
  const added = await registerKeys(config, secrets)
  progress(`keys              ${KEYS.length} registered${added === 0 ? ' before' : ` (${added} new), at home in ${HOME_AT_FIRST}`}`)
}

/** The authority first: a region that knows a key which the control plane does not would let it be written unseen. */
async function registerKeys(config: Config, secrets: Secrets): Promise<number> {
  const controlPlane = createControlPlane(config, secrets)
  const regions = config.regions.map(region => createRegionDatabase(region, config, secrets))
  try {
    const known = await controlPlane.ownership(KEYS)
    const missing = KEYS.filter(key => !known.some(record => record.key === key))
    const added = missing.length === 0 ? [] : await controlPlane.register(missing.map(key => ({ key, homeRegion: HOME_AT_FIRST })))
    // Keys that a region knows stay as they are there; one that is being moved is the run's business.
    const settled = [...known, ...added].filter(record => record.state === 'ACTIVE')
    await Promise.all(regions.map(async region => await region.register(settled)))
    return added.length
  } finally {
    await Promise.allSettled([controlPlane.close(), ...regions.map(async region => await region.close())])
  }
}
