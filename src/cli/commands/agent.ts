import type { Command } from 'commander'
import type { CliContext } from '../context.ts'
import { notes } from './notes.ts'

export function register(program: Command, context: CliContext): void {
  program
    .command('agent')
    .description("renews the regions' leases, sends heartbeats, watches fences and exiles; serves /metrics and /healthz")
    .option('--once', 'every lease, one heartbeat and one look, then end: for a first grant, or from a timer')
    .option('--listen <host:port>', 'instead of agent.listen of the configuration')
    .addHelpText(
      'after',
      notes(
        '\nSeveral may run: one leads at a time. One JSON line for each event on stderr. SIGTERM ends it and gives no lease back.' +
          '\nExit of --once: 0 every lease was granted; 3 one was not; 5 another agent leads; 69 no region answered.',
      ),
    )
    .action(async (flags: { once?: boolean; listen?: string }) => {
      const { agent } = await import('../agent.ts')
      await agent(context, flags)
    })
}
