import type { Command } from 'commander'
import { HomeregionError } from '../../domain/errors.ts'
import type { CliContext } from '../context.ts'
import { exitCodeTable } from '../render/exit-codes.ts'
import { renderTable } from '../render/table.ts'

export function register(program: Command, context: CliContext): void {
  program
    .command('help')
    .argument('[topic...]', 'a command, exit-codes or environment')
    .description('help for a command or a topic')
    .action(async (topic: readonly string[]) => {
      const [name] = topic
      if (name === undefined) context.out.write(program.helpInformation())
      else if (name === 'exit-codes') context.out.line(exitCodeTable())
      else if (name === 'environment') context.out.line(await environmentTable())
      else context.out.write(find(program, topic).helpInformation())
    })
}

async function environmentTable(): Promise<string> {
  const { ENVIRONMENT } = await import('../../adapters/files/config-overrides.ts')
  return renderTable(
    ['variable', 'sets'],
    ENVIRONMENT.map(({ name, sets }) => [name, sets]),
  )
}

function find(program: Command, path: readonly string[]): Command {
  let at = program
  for (const name of path) {
    const next = at.commands.find(command => command.name() === name)
    if (next === undefined)
      throw new HomeregionError('usage', { fact: `there is no command or topic "${path.join(' ')}"`, next: 'homeregion help' })
    at = next
  }
  return at
}
