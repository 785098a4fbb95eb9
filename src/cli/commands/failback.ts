import type { Command } from 'commander'
import type { CliContext } from '../context.ts'
import type { BackFlags } from '../rejoin/failback.ts'
import { driveOptions } from '../run-command.ts'
import { notes } from './notes.ts'

export function register(program: Command, context: CliContext): void {
  const command = program
    .command('failback')
    .description('move the keys that a forced failover took back to where they came from: a planned move, with all of its gates')
    .argument('<run>', 'the run that failed over')
    .option('--runbook <name|file>', 'the runbook to follow', 'failback')
    .option('--plan <id>', 'apply only if this is still the plan')
    .option('--dry-run', 'show the plan and a first look at its checks, and stop')
    .addHelpText(
      'after',
      notes('\nRefused while the region is in exile (homeregion rejoin), and within policy.coolDown unless --reason is given.'),
    )
  driveOptions(command).action(async (runId: string, flags: BackFlags) => {
    const { failback } = await import('../rejoin/failback.ts')
    await failback(context, runId, flags)
  })
}
