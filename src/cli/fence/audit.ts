import type { AuditFinding } from '../../domain/boundary.ts'
import type { CliContext } from '../context.ts'
import { auditText } from '../render/fence.ts'
import { select } from './select.ts'
import { reconcile } from './tell.ts'

/** Reads the catalogue and changes nothing. `--sql` prints what could be run by an administrator who agrees with it. */
export async function audit(context: CliContext, name: string, sql: boolean): Promise<void> {
  const format = context.format('json')
  const { world, region } = await select(context, name, undefined)
  await reconcile(context, world)
  const findings = await world.region(region.name).auditWriters()
  const open = findings.filter(f => !f.accepted)
  // What gets around no fence by itself is told for what may come of it.
  const around = open.filter(f => f.around.length > 0)
  if (format === 'json') context.out.line(JSON.stringify({ region: region.name, findings }))
  else if (sql) context.out.line(statements(region.name, open))
  else context.out.line(auditText(region.name, findings, context.out))
  if (around.length > 0) context.exit('refused')
}

function statements(region: string, open: readonly AuditFinding[]): string {
  return [
    `-- ${region}: ${open.length} ways around the fences that the configuration does not accept`,
    ...open.flatMap(f => [
      `-- ${f.kind} ${oneLine(f.subject)}: ${oneLine(f.why)} (gets around ${f.around.join(', ') || 'no fence by itself'})`,
      closing(f),
    ]),
  ].join('\n')
}

function closing({ closes }: AuditFinding): string {
  if (closes === null) return '-- (no statement closes it)'
  // A command of ours is no SQL.
  return /^homeregion /.test(closes) ? `-- run: ${oneLine(closes)}` : `${closes.replace(/;\s*$/, '')};`
}

/** A name with a line end in it must not come out of its comment. */
function oneLine(text: string): string {
  return text.replace(/[\r\n\u2028\u2029]+/g, ' ')
}
