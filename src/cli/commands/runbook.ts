import type { Command } from 'commander'
import type { CliContext } from '../context.ts'

export function register(program: Command, context: CliContext): void {
  const runbook = program.command('runbook').description('the runbooks: list, show, check and draw them')
  runbook
    .command('list')
    .description('the runbooks that ship with homeregion (-o json)')
    .action(async () => {
      await (await work()).list(context)
    })
  runbook
    .command('show')
    .argument('<runbook>', 'name or file')
    .description('what it does, step by step (-o json, -o yaml)')
    .action(async (name: string) => {
      await (await work()).show(context, name)
    })
  runbook
    .command('lint')
    .argument('<runbook...>', 'names or files')
    .description('refuse every runbook whose activation could be reached without the evidence (-o json)')
    .action(async (names: readonly string[]) => {
      await (await work()).lint(context, names)
    })
  runbook
    .command('graph')
    .argument('<runbook>', 'name or file')
    .description('the steps and their gates as a Mermaid diagram')
    .action(async (name: string) => {
      await (await work()).graph(context, name)
    })
  runbook
    .command('schema')
    .description('JSON Schema of a runbook file, for editors')
    .action(async () => {
      await (await work()).schema(context)
    })
}

async function work() {
  return await import('./runbook-work.ts')
}
