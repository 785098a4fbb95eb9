import type { Command } from 'commander'
import type { CliContext } from '../context.ts'
import type { RotateFlags } from '../fence/flags.ts'
import { notes } from './notes.ts'

export function register(program: Command, context: CliContext): void {
  const credentials = program.command('credentials').description("the writers' logins of a region")
  credentials
    .command('rotate')
    .argument('<region>')
    .option('--role <role...>', 'only these roles (default: every role of the credentials fences)')
    .option('--reason <text>', 'recorded with the rotation', 'planned rotation')
    .option('-y, --yes', 'do not ask for the name of the region')
    .description('new secrets without a move: each role is closed, gets a new secret, and is opened again (-o json)')
    .addHelpText(
      'after',
      notes(
        '\nWriters of these roles are refused for the time between the two, and have to read the new secret from where it was delivered.',
      ),
    )
    .action(async (region: string, flags: RotateFlags) => {
      const { rotate } = await import('../fence/rotate.ts')
      await rotate(context, region, flags)
    })
}
