import { homedir } from 'node:os'
import { join } from 'node:path'

/** Downloads that every sandbox of this user shares; `HOMEREGION_CACHE` moves it. */
export function cacheFolder(env: NodeJS.ProcessEnv = process.env): string {
  return env.HOMEREGION_CACHE ?? join(env.XDG_CACHE_HOME ?? join(homedir(), '.cache'), 'homeregion')
}
