import type { Command } from 'commander'
import type { CliContext } from '../context.ts'

export function register(program: Command, context: CliContext): void {
  const run = program.command('run').description('runs: what was done, step by step, with its evidence')
  run
    .command('list')
    .description('the newest runs (-o json)')
    .option('--open', 'only those that are not settled')
    .option('--key <key>', 'only those of this key')
    .option('--limit <n>', 'at most this many', Number, 20)
    .action(async (flags: { open?: boolean; key?: string; limit: number }) => {
      const { listRuns } = await import('../runs.ts')
      await listRuns(context, flags)
    })
  run
    .command('show')
    .description('one run: keys, attempts and every observation (-o json)')
    .argument('<run>', 'run id')
    .action(async (runId: string) => {
      const { showRun } = await import('../runs.ts')
      await showRun(context, runId)
    })
}
