import type { Command } from 'commander'
import type { CliContext } from '../context.ts'

export function register(program: Command, context: CliContext): void {
  program
    .command('approve')
    .description('agree to a forced failover, by your own control-plane login; the one who began it only by breaking the glass (-o json)')
    .argument('<run>', 'run id')
    .option('--reason <text>', 'recorded with the approval')
    .option(
      '--break-glass',
      'although the policy does not list this login, or it began the run: replaces all approvals, needs a reason, and stands out in every report',
    )
    .action(async (runId: string, flags: { reason?: string; breakGlass?: boolean }) => {
      const { say } = await import('../failover/approve.ts')
      await say(context, runId, 'approved', flags)
    })
}
