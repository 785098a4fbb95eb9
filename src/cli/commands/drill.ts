import { type Command, Option } from 'commander'
import { HomeregionError } from '../../domain/errors.ts'
import type { CliContext } from '../context.ts'
import type { DrillFlags } from '../drill/drill.ts'
import { duration } from '../run-command.ts'
import { notes } from './notes.ts'

type Flags = Omit<DrillFlags, 'keys'> & { readonly keys?: string; readonly sandbox?: boolean }

export function register(program: Command, context: CliContext): void {
  const command = program
    .command('drill')
    .description('rehearse a move on canary keys, there and back; or a forced failover in a sandbox, from the disaster to the way back')
    .option('--keys <k1,k2>', 'canary keys: registered for it, written by nobody who would mind a short stop')
    .option('--from <region>', 'refuse unless the keys are at home here')
    .option('--to <region>', 'the region they move to (default: the other one)')
    .option('--return', 'move them back afterwards', true)
    .option('--no-return', 'leave them where they were moved to')
    .option('--sandbox', 'a forced failover, in a sandbox that is made for it and removed afterwards; reads no configuration')
    .addOption(new Option('--objective <duration>', 'how soon the target has to admit a write').default(60_000, '60s').argParser(duration))
    .option('--runbook <name|file>', 'the runbook to follow', 'drill')
    .addHelpText(
      'after',
      notes(
        '\nExit 0 passed, 2 the objective was missed, 3 failed (the keys are where they were), 5 somebody else needed the keys,' +
          ' 7 the keys could not be moved back, 130 interrupted.',
      ),
    )
    .action(async ({ keys, sandbox, ...flags }: Flags) => {
      if (sandbox === true) {
        const strange = LIVE.find(name => command.getOptionValueSource(name) === 'cli')
        if (strange !== undefined)
          throw new HomeregionError('usage', {
            fact: `--sandbox rehearses on keys and regions of its own; --${strange} is for canary keys`,
            state: 'Nothing was changed.',
            next: 'homeregion drill --sandbox',
          })
        const { sandboxDrill } = await import('../drill/sandbox-drill.ts')
        return await sandboxDrill(context, flags.objective)
      }
      const { drill } = await import('../drill/drill.ts')
      await drill(context, { ...flags, ...(keys === undefined ? {} : { keys: keys.split(',').filter(key => key !== '') }) })
    })
}

const LIVE = ['keys', 'from', 'to', 'return', 'runbook'] as const
