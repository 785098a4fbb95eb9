import type { Command } from 'commander'
import type { CliContext } from '../context.ts'
import type { InitFlags } from '../init.ts'

export function register(program: Command, context: CliContext): void {
  program
    .command('init')
    .description('install or migrate the control plane and the write boundary of each region; shows what it will run (-o json)')
    .option('--dry-run', 'show the SQL and stop')
    .option('-y, --yes', 'apply without asking')
    .option('--region <name...>', 'only these regions, and not the control plane')
    .option('--without <region...>', 'leave these regions out, because they are dark; the control plane is installed all the same')
    .action(async (flags: InitFlags) => {
      const { init } = await import('../init.ts')
      await init(context, flags)
    })
}
