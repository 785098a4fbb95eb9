import { readFileSync } from 'node:fs'
import { OUTSIDE_FENCES } from '../../domain/checks.ts'
import { DRILL_OUTCOMES, RECONCILE_DECISIONS, RECONCILE_KINDS } from '../../domain/failover.ts'
import { FENCE_EVENTS, FENCE_KINDS } from '../../domain/fence.ts'
import { RUN_STATES } from '../../domain/journal.ts'
import { SIGHTS } from '../../domain/loss.ts'
import { packageFile } from '../files/package-root.ts'
import { REFUSAL } from './refusals.ts'
import { forcedCheck, interlockCheck, transitionCheck } from './transition-check.ts'

/** One statement and why it is there, as `init --dry-run` shows it. */
export type RenderedStatement = { readonly sql: string; readonly why: string }

export const CONTROL_SCHEMA = 'homeregion_control'

/** Numbered from 1, in order, never edited once released: a change is a new file. */
const MIGRATIONS = [
  '001-control-plane.sql',
  '002-fences.sql',
  '003-failover.sql',
  '004-installation.sql',
  '005-rejoin.sql',
  '006-forced-keys.sql',
  '007-drills.sql',
  '008-lease-stops.sql',
  '009-redeemed-tokens.sql',
  '010-server-life.sql',
]

export const CONTROL_PLANE_VERSION = MIGRATIONS.length

/** Statements that lead from `installed` (0: nothing there) to the current version. */
export function migrations(installed: number): readonly RenderedStatement[] {
  return MIGRATIONS.slice(installed).flatMap((file, index) => {
    const version = installed + index + 1
    return [
      ...statements(readFileSync(packageFile('src', 'adapters', 'control-plane', 'sql', file), 'utf8')),
      {
        sql: `insert into homeregion_control.schema_version (version) values (${version})`,
        why: `The schema is at version ${version} now.`,
      },
    ]
  })
}

/** Statements are separated by an empty line and begin with `-- @ why`, which may take several lines. */
function statements(text: string): RenderedStatement[] {
  const words = (list: readonly string[]) => list.map(word => `'${word}'`).join(', ')
  const rendered = text
    .replaceAll('{{transition_check}}', transitionCheck())
    .replaceAll('{{interlock_check}}', interlockCheck())
    .replaceAll('{{fence_events}}', words(FENCE_EVENTS))
    .replaceAll('{{fence_kinds}}', words(FENCE_KINDS))
    .replaceAll('{{forced_check}}', forcedCheck())
    .replaceAll('{{run_states}}', words(RUN_STATES))
    .replaceAll('{{outside_fences}}', words(OUTSIDE_FENCES))
    .replaceAll('{{sights}}', words(SIGHTS))
    .replaceAll('{{reconcile_kinds}}', words(RECONCILE_KINDS))
    .replaceAll('{{reconcile_decisions}}', words(RECONCILE_DECISIONS))
    .replaceAll('{{drill_outcomes}}', words(DRILL_OUTCOMES))
    .replaceAll('{{lease_withheld}}', REFUSAL.leaseWithheld)
    .replaceAll('{{not_approved}}', REFUSAL.notApproved)
    .replaceAll('{{exiled}}', REFUSAL.exiled)
    .replaceAll('{{decided}}', REFUSAL.decided)
    .replaceAll('{{lease_not_over}}', REFUSAL.leaseNotOver)
  return rendered
    .split(/\n\s*\n/)
    .filter(block => block.startsWith('-- @ '))
    .map(block => {
      const lines = block.split('\n')
      const why = lines.filter(line => line.startsWith('-- @ ')).map(line => line.slice('-- @ '.length))
      const sql = lines.filter(line => !line.startsWith('-- @ '))
      return { why: why.join(' '), sql: sql.join('\n').trim().replace(/;$/, '') }
    })
}
