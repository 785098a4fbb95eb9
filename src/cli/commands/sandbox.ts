import type { Command } from 'commander'
import type { CliContext } from '../context.ts'
import type { LoadFlags } from './sandbox-load.ts'

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

  sandbox
    .command('load')
    .description('write to both services until Ctrl-C, then hold every acknowledged write against the databases (-o json)')
    .option(...dir)
    .option('--tenant <key...>', 'keys to write (default: tenant-1 … tenant-50)')
    .option('--rate <n>', 'writes begun per second (default: as fast as --writers get their answers)')
    .option('--writers <n>', 'writers at once', '4')
    .option('--for <seconds>', 'end by itself after this long')
    .option('--file <file>', 'append each acknowledged write to this file, one JSON object a line')
    .action(async (options: LoadFlags) => {
      const { sandboxLoad } = await import('./sandbox-load.ts')
      await sandboxLoad(context, options)
    })
}
