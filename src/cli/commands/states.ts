import type { Command } from 'commander'
import type { CliContext } from '../context.ts'

export function register(program: Command, context: CliContext): void {
  program
    .command('states')
    .description('the states of ownership and every legal transition (-o json, -o mermaid)')
    .action(async () => {
      const { statesJson, statesMermaid, statesTable } = await import('../render/states.ts')
      const format = context.format('json', 'mermaid')
      context.out.line({ text: statesTable, json: statesJson, mermaid: statesMermaid }[format]())
    })
}
