import type { Command } from 'commander'
import type { CliContext } from '../context.ts'
import type { RejoinFlags } from '../rejoin/rejoin.ts'
import { notes } from './notes.ts'

export function register(program: Command, context: CliContext): void {
  program
    .command('rejoin')
    .description('bring a region back that was failed over: fence it, list what only it has, bring it level, end its exile (-o json)')
    .argument('<region>', 'the region in exile, which answers again')
    .requiredOption('--reason <text>', 'recorded with the fence and the end of the exile')
    .option('-y, --yes', 'do not ask for the name of the region, nor at the confirmations of the runbook')
    .option('--runbook <name|file>', 'the runbook to follow, pinned at the first rejoin of an exile (default: rejoin)')
    .option('--replace-runbook', 'follow --runbook although another one is pinned; its own steps are done anew')
    .addHelpText(
      'after',
      notes(
        '\nThe same command goes on after it was interrupted, or after `homeregion reconcile` has decided what it found.\nExit 3: writes that only one side has are not decided yet.',
      ),
    )
    .action(async (region: string, flags: RejoinFlags) => {
      const { rejoin } = await import('../rejoin/rejoin.ts')
      await rejoin(context, region, flags)
    })
}
