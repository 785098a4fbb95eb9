import type { OutsideFence } from '../../domain/checks.ts'
import type { LossEstimate } from '../../domain/loss.ts'
import { shellWord } from '../shell-word.ts'
import { boundToType } from './acknowledge.ts'
import type { ForcedFlags } from './flags.ts'

type Regions = { readonly source: string; readonly target: string }

/**
 * The forced failover, whole but for the loss that is owned. What a person has to say stands there in capitals: it is said when the command
 * is given, and not taken over from an earlier one.
 */
export function forcedCommand(pair: Regions, keys: readonly string[], flags: ForcedFlags, fence: OutsideFence): string {
  return [
    'homeregion failover',
    ...what(keys, flags),
    between(pair),
    '--force',
    ...(flags.runbook === undefined ? [] : [`--runbook ${shellWord(flags.runbook)}`]),
    ...(flags.fence === undefined || flags.fence === 'attest' ? [] : [`--fence ${flags.fence}`]),
    ...(fence === 'source-attested' ? ['--attest TEXT --reason TEXT'] : []),
  ].join(' ')
}

/** What shows who sees the source and what may be lost. */
export function planCommand(pair: Regions, keys: readonly string[] = [], flags: Pick<ForcedFlags, 'keysFile'> = {}): string {
  return ['homeregion plan failover', ...what(keys, flags), between(pair)].join(' ')
}

/** Before anybody has looked which regions are meant: with what was typed of them. */
export function planAsAsked(keys: readonly string[], flags: ForcedFlags): string {
  const regions = [...(flags.from === undefined ? [] : [`--from ${flags.from}`]), ...(flags.to === undefined ? [] : [`--to ${flags.to}`])]
  return ['homeregion plan failover', ...what(keys, flags), ...regions].join(' ')
}

type Owned = { readonly command: string; readonly estimate: LossEstimate; readonly fence: OutsideFence }

/** With the loss that it would own, as it stands now. */
export function wholeCommand({ command, estimate, fence }: Owned): string {
  return `${command} --rpo-ack ${boundToType(estimate, fence, 'later')}`
}

function what(keys: readonly string[], { keysFile }: Pick<ForcedFlags, 'keysFile'>): readonly string[] {
  return [...keys.map(shellWord), ...(keysFile === undefined ? [] : [`--keys-file ${shellWord(keysFile)}`])]
}

function between({ source, target }: Regions): string {
  return `--from ${source} --to ${target}`
}
