import type { Command } from 'commander'
import type { CliContext } from '../context.ts'

export function register(program: Command, context: CliContext): void {
  program
    .command('abort')
    .description('take over an open run and give every key back that is not the target’s yet')
    .argument('<run>', 'run id')
    .option('--take-over', 'even while another operator holds its lease (that one is refused from then on)')
    .action(async (runId: string, flags: { takeOver?: boolean }) => {
      const { abort } = await import('../settle-run.ts')
      await abort(context, runId, flags)
    })
}
