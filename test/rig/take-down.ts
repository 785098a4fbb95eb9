import { rmSync } from 'node:fs'
import { createSandbox } from '../../sandbox/sandbox.ts'

// Waits for the end of its stdin, which is the end of the tests, then takes the sandbox down unless they did.
const dir = process.argv[2]
if (dir === undefined) throw new Error('usage: take-down.ts FOLDER')
process.stdin.on('end', () => void takeDown(dir))
process.stdin.resume()

async function takeDown(folder: string): Promise<void> {
  await createSandbox({ dir: folder }).down()
  rmSync(folder, { recursive: true, force: true })
}
