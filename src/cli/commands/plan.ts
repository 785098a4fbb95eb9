import type { Command } from 'commander'
import { HomeregionError } from '../../domain/errors.ts'
import type { CliContext } from '../context.ts'
import { type ForcedFlags, forcedOptions } from '../failover/flags.ts'
import type { PlanFlags } from '../plan-request.ts'

type Flags = Omit<PlanFlags, 'to'> & { readonly to?: string; readonly exitCode?: boolean }

export function register(program: Command, context: CliContext): void {
  const command = program
    .command('plan')
    .description('show what a transfer would do and a first look at its checks; changes nothing (-o json)')
    .argument('[key...]', 'ownership keys')
    .option('--to <region>', 'the new home region')
    .option('--keys-file <file>', 'keys from a file, one a line')
    .option('--runbook <name|file>', 'the runbook to follow', 'transfer')
    .option('--confirm-count <n>', 'the number of keys, where it is above policy.maxKeys', Number)
    .option('--exit-code', 'end with 2 when the plan would change something')
    // What stands behind `failover` is its own.
    .enablePositionalOptions()
    .action(async (keys: string[], flags: Flags) => {
      const { to } = flags
      if (to === undefined)
        throw new HomeregionError('usage', {
          fact: "required option '--to <region>' not specified",
          state: 'Nothing was read or changed.',
          next: 'homeregion plan --help',
        })
      const { showPlan } = await import('../show-plan.ts')
      const plan = await showPlan(context, keys, { ...flags, to })
      if (flags.exitCode === true && plan.moves.length > 0) context.exit('changes')
    })
  const failover = command
    .command('failover')
    .description('who sees the source, what a forced failover may lose, and a token that owns that loss; hands nothing over (-o json)')
    .argument('[key...]', 'ownership keys; all at home in the source, if none is given')
  forcedOptions(failover).action(async (keys: string[], flags: ForcedFlags) => {
    const { planFailover } = await import('../failover/failover.ts')
    await planFailover(context, keys, flags)
  })
}
