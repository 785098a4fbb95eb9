import { existsSync, readFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { dirname } from 'node:path'
import { Script } from 'node:vm'
import { packageFile } from '../adapters/files/package-root.ts'
import type { run } from './program.ts'

type Program = { readonly run: typeof run }

/** Set by the build: name of the one-file bundle of program.ts, with the hash of its content in it. */
declare const HOMEREGION_PROGRAM: string | undefined

/**
 * The program. Where the build has left V8's compiled code for this very version of Node, it is used: compiling is most of what a
 * command costs to start (`config validate` 2.4 of bare Node without it, 1.75 with it). Anywhere else, the split bundle or the sources.
 */
export async function loadProgram(): Promise<Program> {
  return compiledProgram() ?? (await import('./program.ts'))
}

function compiledProgram(): Program | null {
  if (typeof HOMEREGION_PROGRAM === 'undefined') return null
  const file = packageFile('dist', HOMEREGION_PROGRAM)
  const cache = compiledFile(file)
  if (!existsSync(cache) || !existsSync(file)) return null
  const { script, rejected } = compile(file, readFileSync(cache))
  return rejected ? null : evaluate(script, file)
}

/** Compiled code is good for one version and one processor only; its name says which, and V8 checks it again. */
export function compiledFile(program: string): string {
  return `${program}.${process.version}-${process.arch}.cache`
}

export function compile(file: string, cachedData?: Buffer): { readonly script: Script; readonly rejected: boolean } {
  // The build writes ASCII only, so that V8 keeps one byte for each character.
  const source = `(function (exports, require, module, __filename, __dirname) {${readFileSync(file, 'latin1')}\n})`
  const script = new Script(source, { filename: file, ...(cachedData === undefined ? {} : { cachedData }) })
  return { script, rejected: script.cachedDataRejected === true }
}

export function evaluate(script: Script, file: string): Program {
  const made = { exports: {} }
  const define = script.runInThisContext() as (...values: unknown[]) => void
  define(made.exports, createRequire(file), made, file, dirname(file))
  return made.exports as Program
}
