import type { Command } from 'commander'
import type { CliContext } from '../context.ts'
import { type DriveFlags, driveOptions } from '../run-command.ts'

export function register(program: Command, context: CliContext): void {
  const command = program
    .command('resume')
    .description('take over an open run from any machine, settle what was left unfinished, and go on')
    .argument('<run>', 'run id')
    .option('--take-over', 'even while another operator holds its lease (that one is refused from then on)')
  driveOptions(command).action(async (runId: string, flags: DriveFlags & { takeOver?: boolean }) => {
    const { resume } = await import('../settle-run.ts')
    await resume(context, runId, flags)
  })
}
