// `npm test` on a fresh clone: installs what is missing, builds, and leaves vitest's summary last. Plain Node: nothing is installed yet.
import { ensureInstalled, runOrExit } from './install.mjs'

ensureInstalled()
runOrExit(process.execPath, ['scripts/build.mjs'])
// What forced failovers do killed at each point and at random is `npm run test:over-and-over`.
const asked = process.argv.slice(2)
const projects = asked.includes('--project') ? [] : ['unit', 'integration', 'rig', 'e2e', 'failover'].flatMap(name => ['--project', name])
runOrExit(process.execPath, ['node_modules/vitest/vitest.mjs', 'run', ...projects, ...asked])
