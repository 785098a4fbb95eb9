import type { Command } from 'commander'
import type { CliContext } from '../context.ts'
import type { PlanFlags } from '../plan-request.ts'

export function register(program: Command, context: CliContext): void {
  program
    .command('plan')
    .description('show what a transfer would do and a first look at its checks; changes nothing (-o json)')
    .argument('[key...]', 'ownership keys')
    .requiredOption('--to <region>', 'the new home region')
    .option('--keys-file <file>', 'keys from a file, one a line')
    .option('--runbook <name|file>', 'the runbook to follow', 'transfer')
    .option('--confirm-count <n>', 'the number of keys, where it is above policy.maxKeys', Number)
    .option('--exit-code', 'end with 2 when the plan would change something')
    .action(async (keys: string[], flags: PlanFlags & { exitCode?: boolean }) => {
      const { showPlan } = await import('../show-plan.ts')
      const plan = await showPlan(context, keys, flags)
      if (flags.exitCode === true && plan.moves.length > 0) context.exit('changes')
    })
}
