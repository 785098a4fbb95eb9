import type { Command } from 'commander'
import type { CliContext } from '../context.ts'

export function register(program: Command, context: CliContext): void {
  program
    .command('reject')
    .description('refuse a forced failover, by your own control-plane login; it stands whatever others say (-o json)')
    .argument('<run>', 'run id')
    .option('--reason <text>', 'recorded with the rejection')
    .action(async (runId: string, flags: { reason?: string }) => {
      const { say } = await import('../failover/approve.ts')
      await say(context, runId, 'rejected', flags)
    })
}
