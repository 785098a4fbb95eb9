import type { Command } from 'commander'
import type { CliContext } from '../context.ts'

type DirOption = { readonly dir?: string }

export function register(program: Command, context: CliContext): void {
  const sandbox = program.command('sandbox').description('two real regions on this machine: databases, brokers, a service each')
  const dir = ['--dir <folder>', 'folder of the sandbox (default: HOMEREGION_SANDBOX, else one per user in the temporary folder)'] as const

  sandbox
    .command('up')
    .description('start what does not run: control plane, two regions, 50 keys at home in region-a')
    .option(...dir)
    .action(async (options: DirOption) => {
      const { sandboxUp } = await import('./sandbox-work.ts')
      await sandboxUp(context, options)
    })

  sandbox
    .command('down')
    .description('stop everything and remove the data')
    .option(...dir)
    .option('--keep', 'leave data and logs for the next up')
    .action(async (options: DirOption & { readonly keep?: boolean }) => {
      const { sandboxDown } = await import('./sandbox-work.ts')
      await sandboxDown(context, options)
    })

  sandbox
    .command('status')
    .description('which parts run, and where their logs are (-o json)')
    .option(...dir)
    .action(async (options: DirOption) => {
      const { sandboxStatus } = await import('./sandbox-work.ts')
      sandboxStatus(context, options)
    })
}
