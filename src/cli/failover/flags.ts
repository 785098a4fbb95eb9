import { type Command, Option } from 'commander'
import type { FenceWord } from '../../engine/outside-fence.ts'
import type { DriveFlags } from '../run-command.ts'

/** What is moved, and away from what; the same for the failover and its plan. */
export type ForcedFlags = {
  readonly from?: string
  readonly to?: string
  readonly fence?: FenceWord
  readonly attest?: string
  readonly runbook?: string
  readonly keysFile?: string
  /** `true`: without a bound, which is then typed at the terminal. */
  readonly rpoAck?: string | true
}

export type FailoverFlags = ForcedFlags & DriveFlags & { readonly force?: boolean; readonly ticket?: string; readonly plan?: string }

export function forcedOptions(command: Command): Command {
  return command
    .option('--from <region>', 'the region that is left')
    .option('--to <region>', 'the new home region')
    .addOption(
      new Option('--fence <kind>', 'what the source is fenced by from outside: the strongest there is, if not said').choices([
        'lease',
        'external',
        'attest',
      ]),
    )
    .option('--attest <text>', 'your word, and its reason, that the source can no longer write; a second person has to agree')
    .option('--keys-file <file>', 'keys from a file, one a line')
    .option('--runbook <name|file>', 'the runbook to follow (default: failover with --force, else transfer)')
}

/** Why the run happens, as it is recorded. */
export function reasonOf({ reason, ticket }: Pick<FailoverFlags, 'reason' | 'ticket'>): string | null {
  const text = [reason, ticket === undefined ? undefined : `[${ticket}]`].filter(t => t !== undefined && t !== '').join(' ')
  return text === '' ? null : text
}
