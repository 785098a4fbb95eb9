import { createSandbox } from '../../sandbox/sandbox.ts'

// A process that starts a sandbox, for tests that kill it half way.
const dir = process.argv[2]
if (dir === undefined) throw new Error('usage: bring-up.ts FOLDER')
await createSandbox({ dir, services: false }).up()
