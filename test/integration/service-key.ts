import { loadConfig } from '../../src/adapters/files/config-file.ts'
import { createRegionDatabase } from '../../src/adapters/postgres-region/region-database.ts'
import { createSecrets } from '../../src/adapters/system/secrets.ts'
import type { Config } from '../../src/domain/config.ts'
import type { Rig } from '../rig/rig.ts'

export function rigConfig(rig: Rig): Config {
  const env = { PATH: process.env['PATH'] ?? '' }
  return loadConfig({ file: rig.config, env, cwd: rig.dir, flags: {} }).config
}

/** Makes a key known to both regions' boundaries, at home in region-a: all that a service asks for. */
export async function registerKey(rig: Rig, key: string): Promise<void> {
  const config = rigConfig(rig)
  for (const region of config.regions) {
    const database = createRegionDatabase(region, config, createSecrets({}))
    try {
      await database.register([{ key, homeRegion: 'region-a', epoch: 1 }])
    } finally {
      await database.close()
    }
  }
}
