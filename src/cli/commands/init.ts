import type { Command } from 'commander'
import type { CliContext } from '../context.ts'

export function register(program: Command, context: CliContext): void {
  program
    .command('init')
    .description('install or migrate the control plane and the write boundary of each region; shows what it will run (-o json)')
    .option('--dry-run', 'show the SQL and stop')
    .option('-y, --yes', 'apply without asking')
    .option('--region <name...>', 'only these regions, and not the control plane')
    .action(async (flags: { dryRun?: boolean; yes?: boolean; region?: string[] }) => {
      const { init } = await import('../init.ts')
      await init(context, flags)
    })
}
