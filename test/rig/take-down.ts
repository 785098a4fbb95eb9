import { rmSync } from 'node:fs'
import { createSandbox } from '../../sandbox/sandbox.ts'
import { waitUntil } from '../../sandbox/wait-until.ts'

// Waits for the end of its stdin, which is the end of the tests, then takes the sandbox down unless they did.
const dir = process.argv[2]
if (dir === undefined) throw new Error('usage: take-down.ts FOLDER')
process.stdin.on('end', () => void takeDown(dir))
process.stdin.resume()

async function takeDown(folder: string): Promise<void> {
  // A test that timed out may still be starting the sandbox: its lock is waited for.
  const sandbox = createSandbox({ dir: folder })
  await waitUntil(
    async () =>
      await sandbox.down().then(
        () => true,
        () => false,
      ),
    180_000,
  )
  rmSync(folder, { recursive: true, force: true })
}
