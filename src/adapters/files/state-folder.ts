import { homedir } from 'node:os'
import { join } from 'node:path'

/** Where this machine remembers what must outlive a process: HOMEREGION_STATE_DIR, else the XDG state folder of the user. */
export function stateFolder(env: Readonly<Record<string, string | undefined>>): string {
  const own = env['HOMEREGION_STATE_DIR']
  if (own !== undefined && own !== '') return own
  const xdg = env['XDG_STATE_HOME']
  // The XDG rule: a relative path is to be ignored.
  if (xdg?.startsWith('/') === true) return join(xdg, 'homeregion')
  const home = env['HOME'] ?? homedir()
  return join(home, '.local', 'state', 'homeregion')
}
