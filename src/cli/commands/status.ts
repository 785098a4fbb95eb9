import type { Command } from 'commander'
import type { CliContext } from '../context.ts'

export function register(program: Command, context: CliContext): void {
  program
    .command('status')
    .description('who owns what, which runs are open, what needs somebody (-o json, -o paste for an incident channel)')
    .argument('[key...]', 'only these keys, with their last changes')
    .option('--exit-code', 'end with 2 when something is not ACTIVE or a run is open')
    .action(async (keys: string[], flags: { exitCode?: boolean }) => {
      const { status } = await import('../status.ts')
      await status(context, keys, flags.exitCode === true)
    })
}
