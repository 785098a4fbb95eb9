import { type Command, Option } from 'commander'
import type { CliContext } from '../context.ts'
import type { DrillFlags } from '../drill/drill.ts'
import { duration } from '../run-command.ts'

type Flags = Omit<DrillFlags, 'keys'> & { readonly keys?: string }

export function register(program: Command, context: CliContext): void {
  program
    .command('drill')
    .description('rehearse a move on canary keys, there and back, and keep how long it took and what the far consumers missed')
    .option('--keys <k1,k2>', 'canary keys: registered for it, written by nobody who would mind a short stop')
    .option('--from <region>', 'refuse unless the keys are at home here')
    .option('--to <region>', 'the region they move to (default: the other one)')
    .option('--return', 'move them back afterwards (default)', true)
    .option('--no-return', 'leave them where they were moved to')
    .addOption(new Option('--objective <duration>', 'how soon the target has to admit a write').default(60_000, '60s').argParser(duration))
    .option('--runbook <name|file>', 'the runbook to follow', 'drill')
    .action(async ({ keys, ...flags }: Flags) => {
      const { drill } = await import('../drill/drill.ts')
      await drill(context, { ...flags, ...(keys === undefined ? {} : { keys: keys.split(',').filter(key => key !== '') }) })
    })
}
