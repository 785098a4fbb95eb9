import { readFileSync } from 'node:fs'
import { packageFile } from '../../adapters/files/package-root.ts'
import { loadRunbook, shippedRunbooks } from '../../adapters/files/runbook-file.ts'
import { HomeregionError, isHomeregionError } from '../../domain/errors.ts'
import type { Intent } from '../../domain/runbook.ts'
import type { CliContext } from '../context.ts'
import { runbookListTable, runbookMermaid, runbookText } from '../render/runbook.ts'

export async function list(context: CliContext): Promise<void> {
  const format = context.format('json')
  const runbooks = shippedRunbooks().map(name => loadRunbook(name, context.cwd))
  if (format === 'text') context.out.line(runbookListTable(runbooks.map(pinned => pinned.runbook)))
  else
    context.out.line(
      JSON.stringify(
        runbooks.map(({ runbook, sha256, origin }) => ({
          name: runbook.name,
          intent: runbook.intent,
          title: runbook.title,
          steps: runbook.steps.length,
          sha256,
          origin,
        })),
        null,
        2,
      ),
    )
}

export async function show(context: CliContext, name: string): Promise<void> {
  const format = context.format('json', 'yaml')
  const { runbook, text, sha256, origin } = loadRunbook(name, context.cwd)
  if (format === 'yaml') context.out.write(text)
  else if (format === 'json') context.out.line(JSON.stringify({ ...runbook, sha256, origin }, null, 2))
  else context.out.line(runbookText(runbook))
}

/** Every file is read before anything is said: one report for all of them. */
export async function lint(context: CliContext, names: readonly string[]): Promise<void> {
  const format = context.format('json')
  const results = names.map(name => ({ name, error: refusal(context, name) }))
  const refused = results.flatMap(({ error }) => (error === null ? [] : [error]))
  const [first] = refused
  if (first !== undefined) throw refused.length === 1 ? first : together(refused, names.length)
  if (format === 'json') context.out.line(JSON.stringify(names.map(name => ({ runbook: name, valid: true }))))
  else for (const name of names) context.out.line(`${name} is valid: ${PROMISES[loadRunbook(name, context.cwd).runbook.intent]}`)
}

/** What the linter has made sure of. */
const PROMISES: Readonly<Record<Intent, string>> = {
  transfer: 'its activation cannot be reached without fence and catch-up evidence',
  failover: 'its activation cannot be reached without a fence from outside and a loss that somebody owned',
  rejoin: 'the region is fenced before anything else, and opened only when it was decided about and is level',
}

export async function graph(context: CliContext, name: string): Promise<void> {
  context.format('mermaid')
  context.out.line(runbookMermaid(loadRunbook(name, context.cwd).runbook))
}

export async function schema(context: CliContext): Promise<void> {
  context.format('json')
  context.out.write(readFileSync(packageFile('schemas', 'runbook.v1.schema.json'), 'utf8'))
}

function refusal(context: CliContext, name: string): HomeregionError | null {
  try {
    loadRunbook(name, context.cwd)
    return null
  } catch (error) {
    if (isHomeregionError(error, 'runbook-invalid')) return error
    throw error
  }
}

function together(refused: readonly HomeregionError[], asked: number): HomeregionError {
  const report = refused.map(({ text, fields }) => (typeof fields['report'] === 'string' ? fields['report'] : text.fact)).join('\n')
  const problems = refused.flatMap(({ fields }) => (Array.isArray(fields['problems']) ? (fields['problems'] as unknown[]) : []))
  return new HomeregionError(
    'runbook-invalid',
    {
      fact: `${refused.length} of ${asked} runbooks cannot be used`,
      state: 'Nothing was changed.',
      next: 'homeregion runbook show transfer',
    },
    { fields: { report, problems } },
  )
}
