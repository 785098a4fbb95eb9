import type { Command } from 'commander'
import type { CliContext } from '../context.ts'

export function register(program: Command, context: CliContext): void {
  program
    .command('doctor')
    .description('connectivity, versions, privileges, the boundary on each guarded table, ways around it, the audit chain (-o json)')
    .action(async () => {
      const { doctor } = await import('../doctor.ts')
      await doctor(context)
    })
}
