// `npm test` on a fresh clone: installs what is missing, builds, and leaves vitest's summary last. Plain Node: nothing is installed yet.
import { ensureInstalled, runOrExit } from './install.mjs'

ensureInstalled()
runOrExit(process.execPath, ['scripts/build.mjs'])
// A region going dark is rehearsed by `npm run test:failover`, which takes half as long again.
const asked = process.argv.slice(2)
const projects = asked.includes('--project') ? [] : ['unit', 'integration', 'rig', 'e2e'].flatMap(name => ['--project', name])
runOrExit(process.execPath, ['node_modules/vitest/vitest.mjs', 'run', ...projects, ...asked])
