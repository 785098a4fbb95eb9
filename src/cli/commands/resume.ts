import type { Command } from 'commander'
import type { CliContext } from '../context.ts'
import type { ResumeFlags } from '../run-command.ts'
import { driveOptions } from '../run-command.ts'

export function register(program: Command, context: CliContext): void {
  const command = program
    .command('resume')
    .description('take over an open run from any machine, settle what was left unfinished, and go on')
    .argument('<run>', 'run id')
    .option('--take-over', 'even while another operator holds its lease (that one is refused from then on)')
    .option(
      '--rpo-ack [bound]',
      'of a forced failover: own the loss again, where the first acknowledgement is too small or was not recorded',
    )
    .option('--attest <text>', 'of a forced failover: your word that the source can no longer write, where none is on record')
  driveOptions(command).action(async (runId: string, flags: ResumeFlags) => {
    const { resume } = await import('../settle-run.ts')
    await resume(context, runId, flags)
  })
}
