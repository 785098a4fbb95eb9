// `npm test` on a fresh clone: installs what is missing, builds, and leaves vitest's summary last. Plain Node: nothing is installed yet.
import { ensureInstalled, runOrExit } from './install.mjs'

ensureInstalled()
runOrExit(process.execPath, ['scripts/build.mjs'])
runOrExit(process.execPath, ['node_modules/vitest/vitest.mjs', 'run', ...process.argv.slice(2)])
