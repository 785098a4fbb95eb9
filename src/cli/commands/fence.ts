import type { Command } from 'commander'
import type { CliContext } from '../context.ts'
import type { FenceFlags } from '../fence/flags.ts'
import { notes } from './notes.ts'

export function register(program: Command, context: CliContext): void {
  const fence = program
    .command('fence')
    .description('the fences of a whole region: put up, prove, take down, and who could get around them')
  const named = (command: Command) =>
    command.option('--fence <name...>', 'only these fences (default: the boundary and all that are configured)')

  named(fence.command('plan'))
    .argument('<region>')
    .option('--lift', 'of lifting instead of applying')
    .description('the exact statements and calls that apply (or lift) would make; changes nothing (-o json)')
    .action(async (region: string, flags: FenceFlags & { lift?: boolean }) => {
      const { plan } = await import('../fence/look.ts')
      await plan(context, region, flags, flags.lift === true ? 'lift' : 'apply')
    })
  named(fence.command('apply'))
    .argument('<region>')
    .requiredOption('--reason <text>', 'recorded with each fence')
    .option('-y, --yes', 'do not ask for the name of the region')
    .description('stop every writer of the region, and prove it; works without the control plane (-o json)')
    .addHelpText(
      'after',
      notes(
        '\nOne fence that fails does not keep the others from being tried. Where the control plane does not answer, what was done is kept on this' +
          ' machine and handed over by the next status, doctor or fence command here that reaches it.' +
          '\nExit 0: every fence stands and is proved; 3: one does not hold; 7: one was not applied; 9: one could not be proved.',
      ),
    )
    .action(async (region: string, flags: FenceFlags & { reason: string }) => {
      const { apply } = await import('../fence/change.ts')
      await apply(context, region, flags)
    })
  named(fence.command('probe'))
    .argument('<region>')
    .description('prove every fence that stands again, and write as each declared writer, always rolled back (-o json)')
    .addHelpText(
      'after',
      notes(
        '\nExit 0: everything is refused; 3: something is admitted, or a fence on record does not hold; 9: something could not be seen.',
      ),
    )
    .action(async (region: string, flags: FenceFlags) => {
      const { probe } = await import('../fence/look.ts')
      await probe(context, region, flags)
    })
  named(fence.command('lift'))
    .argument('<region>')
    .requiredOption('--reason <text>', 'recorded with each fence')
    .option('--as-target', 'the region owns no key yet: it is about to receive its first')
    .option('-y, --yes', 'do not ask for the name of the region')
    .description('bring back exactly what apply changed, on the word of the control plane (-o json)')
    .addHelpText(
      'after',
      notes(
        '\nRefused (exit 4) unless the control plane answers, says that the region owns a key, and contradicts none of the keys that would become' +
          ' writable there. No flag goes around that: it is what keeps two regions from writing one key.',
      ),
    )
    .action(async (region: string, flags: FenceFlags & { reason: string }) => {
      const { lift } = await import('../fence/change.ts')
      await lift(context, region, flags)
    })
  named(fence.command('status'))
    .argument('[region]', 'default: every region')
    .description('each fence: whether it stands, since when, by whom, why, and what it holds (-o json)')
    .addHelpText('after', notes('\nExit 3: a fence on record was found lifted; 9: one could not be read.'))
    .action(async (region: string | undefined, flags: FenceFlags) => {
      const { status } = await import('../fence/look.ts')
      await status(context, region ?? null, flags)
    })
  fence
    .command('audit')
    .argument('<region>')
    .option('--sql', 'only the statements that close what is not accepted')
    .description('every role and path that can write around the fences, from the catalogue (-o json)')
    .addHelpText('after', notes('\nExit 3: there is one that the configuration does not accept.'))
    .action(async (region: string, flags: { sql?: boolean }) => {
      const { audit } = await import('../fence/audit.ts')
      await audit(context, region, flags.sql === true)
    })
}
