// `npm test` on a fresh clone: installs what is missing, builds, and leaves vitest's summary last. Plain Node: nothing is installed yet.
import { ensureInstalled, runOrExit } from './install.mjs'

ensureInstalled()
runOrExit(process.execPath, ['scripts/build.mjs'])
// Agents, cut links, drills and forced failovers killed at each point and at random are `npm run test:rehearsal`.
const asked = process.argv.slice(2)
const projects = asked.includes('--project') ? [] : ['unit', 'integration', 'rig', 'e2e', 'failover'].flatMap(name => ['--project', name])
runOrExit(process.execPath, ['node_modules/vitest/vitest.mjs', 'run', ...projects, ...asked])
