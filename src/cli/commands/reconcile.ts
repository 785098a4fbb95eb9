import { Argument, type Command } from 'commander'
import type { CliContext } from '../context.ts'
import type { Decision, ReconcileFlags } from '../rejoin/reconcile.ts'
import { notes } from './notes.ts'

export function register(program: Command, context: CliContext): void {
  program
    .command('reconcile')
    .description('writes that only one side of a forced failover has, with their content, and what is decided about each (-o json)')
    .argument('<run>', 'the run that failed over')
    .addArgument(new Argument('[decision]', 'what is decided about the items that are named').choices(['drop', 'reapply', 'exported']))
    .option('--decide <item>', 'this item; may be given again', again)
    .option('--all-of <key>', 'every undecided item of this key; may be given again', again)
    .option('--all', 'every undecided item of the run')
    .option('--reason <text>', 'stands with the decision')
    .option('--file <file>', 'of exported: a new file that the items are written to, one JSON object a line')
    .option('--key <key>', 'list the items of this key, with what was written')
    .option('--undecided', 'list only what nobody has decided')
    .option('--csv <file>', 'list into a new file; cells that begin like a formula have a mark before it')
    .addHelpText(
      'after',
      notes(`
drop      the write is not carried over; at the old home its row is replaced
reapply   the configured command applies it at the new owner: the write is JSON on its stdin, exit 0 says that it did
exported  it is written to --file and closed by hand
All that is named is looked at before anything is decided. A decision stands. The login of the control plane that made it is on record with the reason.`),
    )
    .action(async (run: string, decision: Decision | undefined, flags: ReconcileFlags) => {
      const { reconcile } = await import('../rejoin/reconcile.ts')
      await reconcile(context, run, decision, flags)
    })
}

function again(value: string, more: readonly string[] = []): readonly string[] {
  return [...more, value]
}
