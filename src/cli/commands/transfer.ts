import type { Command } from 'commander'
import type { CliContext } from '../context.ts'
import { driveOptions, type TransferFlags } from '../run-command.ts'

export function register(program: Command, context: CliContext): void {
  const command = program
    .command('transfer')
    .description('move write ownership of keys to another region; loses no committed write, or is rolled back')
    .argument('[key...]', 'ownership keys')
    .requiredOption('--to <region>', 'the new home region')
    .option('--keys-file <file>', 'keys from a file, one a line')
    .option('--runbook <name|file>', 'the runbook to follow', 'transfer')
    .option('--plan <id>', 'apply only if this is still the plan')
    .option('--dry-run', 'show the plan and a first look at its checks, and stop')
  driveOptions(command).action(async (keys: string[], flags: TransferFlags) => {
    const { transfer } = await import('../transfer.ts')
    await transfer(context, keys, flags)
  })
}
