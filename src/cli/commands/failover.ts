import type { Command } from 'commander'
import type { CliContext } from '../context.ts'
import { type FailoverFlags, forcedOptions } from '../failover/flags.ts'
import { driveOptions } from '../run-command.ts'

export function register(program: Command, context: CliContext): void {
  const command = program
    .command('failover')
    .description('move all keys (or those named) away from a region; --force: although it is dark, and what may be lost is owned first')
    .argument('[key...]', 'ownership keys; all at home in the source, if none is given')
    .option('--force', 'the source is dark: what it alone has is lost or comes back late')
    .option('--rpo-ack [bound]', 'own the loss: 91s, 5m, any, or the token of plan failover; without a bound it is typed at the terminal')
    .option('--ticket <id>', 'recorded with the reason')
    .option('--plan <id>', 'apply only if this is still the plan')
  driveOptions(forcedOptions(command)).action(async (keys: string[], flags: FailoverFlags) => {
    const { failover } = await import('../failover/failover.ts')
    await failover(context, keys, flags)
  })
}
