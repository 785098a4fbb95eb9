import type { Command } from 'commander'
import { HomeregionError } from '../../domain/errors.ts'
import type { CliContext } from '../context.ts'
import { driveOptions, type TransferFlags } from '../run-command.ts'

type Flags = Omit<TransferFlags, 'to'> & { readonly to?: string; readonly back?: boolean }

export function register(program: Command, context: CliContext): void {
  const command = program
    .command('transfer')
    .description('move write ownership of keys to another region; loses no committed write, or is rolled back')
    .argument('[key...]', 'ownership keys')
    .option('--to <region>', 'the new home region')
    .option('--back', 'to where the keys were at home before, instead of --to')
    .option('--keys-file <file>', 'keys from a file, one a line')
    .option('--runbook <name|file>', 'the runbook to follow', 'transfer')
    .option('--plan <id>', 'apply only if this is still the plan')
    .option('--dry-run', 'show the plan and a first look at its checks, and stop')
  driveOptions(command).action(async (keys: string[], flags: Flags) => {
    const { to, back, ...more } = flags
    if ((to === undefined) === (back !== true))
      throw new HomeregionError('usage', {
        fact: to === undefined ? 'where the keys are moved to is not said' : '--to and --back are two ways to say where to',
        state: 'Nothing was read or changed.',
        next: 'homeregion transfer KEY --to REGION',
      })
    if (to === undefined) {
      const { transferBack } = await import('../rejoin/failback.ts')
      await transferBack(context, keys, more)
      return
    }
    const { transfer } = await import('../transfer.ts')
    await transfer(context, keys, { ...more, to })
  })
}
