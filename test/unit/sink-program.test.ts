import { expect, test } from 'vitest'
import { type ProgramRun, runProgram } from '../../src/adapters/sinks/run-program.ts'

const TRIES = 300

/** Short programs side by side, since what ends first, the program or the pipe to it, is a matter of load. */
async function refusals(input: ProgramRun['input']): Promise<readonly string[]> {
  const refused: string[] = []
  const some = async () => {
    for (let i = 0; i < TRIES / 10; i += 1)
      await runProgram({ place: 'p', argv: ['true'], env: process.env, input, timeoutMs: 10_000 }).catch((error: unknown) => {
        refused.push(String(error))
      })
  }
  await Promise.all(Array.from({ length: 10 }, some))
  return refused
}

test('a program that is given nothing need not read its stdin', async () => {
  expect(await refusals(null)).toEqual([])
}, 30_000)

test('one that is given a secret and ends without reading it did not take it', async () => {
  // More than a pipe holds, so that it cannot be left lying in it.
  const refused = await refusals('x'.repeat(1024 * 1024))
  expect(refused).toHaveLength(TRIES)
  expect(refused.filter(text => !text.includes('without reading its stdin'))).toEqual([])
}, 30_000)
