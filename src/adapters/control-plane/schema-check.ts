import type { Config } from '../../domain/config.ts'
import type { ControlPlaneFacts } from '../../domain/ports.ts'
import type { Connection } from '../postgres/connection.ts'
import { GRANTS, loginUser } from './grants.ts'
import { sqlstate } from './refusals.ts'
import { CONTROL_PLANE_VERSION, migrations } from './schema.ts'
import { forcedCheck, interlockCheck, transitionCheck } from './transition-check.ts'

/** Read-only but for a temporary table that holds our own constraints, so that the server itself puts both sides into one wording. */
export async function readControlPlaneFacts(connection: Connection, config: Config): Promise<ControlPlaneFacts> {
  const [server, present] = await Promise.all([
    connection.query(
      'read',
      `select current_setting('server_version') as version, pg_is_in_recovery() as in_recovery,
        current_setting('transaction_read_only') = 'on' as read_only, current_setting('synchronous_commit') as synchronous_commit`,
    ),
    connection.query('read', `select to_regclass('homeregion_control.schema_version') is not null as present`),
  ])
  const row = server.rows[0]
  const facts = {
    serverVersion: String(row?.version),
    inRecovery: row?.in_recovery === true,
    readOnly: row?.read_only === true,
    synchronousCommit: String(row?.synchronous_commit),
  }
  if (present.rows[0]?.present !== true)
    return { ...facts, version: null, schemaProblems: ['the control plane is not installed'], privilegeProblems: [] }
  const found = await connection.query('read', 'select coalesce(max(version), 0) as version from homeregion_control.schema_version')
  const version = Number(found.rows[0]?.version)
  // Another version's constraints are not ours to judge.
  const other = version === CONTROL_PLANE_VERSION ? null : [`version ${version} is installed, this tool knows ${CONTROL_PLANE_VERSION}`]
  return {
    ...facts,
    version,
    schemaProblems: other ?? [...(await transitionProblems(connection)), ...(await missingObjects(connection))],
    privilegeProblems: await privilegeProblems(connection, config),
  }
}

/** The rule of each transition in the database is the one in `TRANSITIONS`. */
async function transitionProblems(connection: Connection): Promise<string[]> {
  try {
    const answers = await connection.transaction('read', [
      { sql: 'create temporary table homeregion_rules (like homeregion_control.ownership_log) on commit drop' },
      { sql: `alter table pg_temp.homeregion_rules add constraint ownership_log_transition check (${transitionCheck()})` },
      { sql: `alter table pg_temp.homeregion_rules add constraint ownership_log_interlock check (${interlockCheck()})` },
      { sql: `alter table pg_temp.homeregion_rules add constraint ownership_log_forced check (${forcedCheck()})` },
      {
        sql: `select ours.conname as name, theirs.oid is null as missing, not coalesce(theirs.convalidated, false) as unvalidated,
  pg_get_constraintdef(ours.oid) is distinct from pg_get_constraintdef(theirs.oid) as differs
from pg_constraint ours
left join pg_constraint theirs on theirs.conname = ours.conname and theirs.conrelid = 'homeregion_control.ownership_log'::regclass
where ours.conrelid = 'pg_temp.homeregion_rules'::regclass and ours.contype = 'c' and ours.conname like 'ownership_log_%'`,
      },
    ])
    return (answers[4]?.rows ?? []).flatMap(row => {
      if (row.missing === true) return [`constraint ${String(row.name)} is missing`]
      if (row.differs === true) return [`constraint ${String(row.name)} is not the transition table of this tool`]
      return row.unvalidated === true ? [`constraint ${String(row.name)} is not validated`] : []
    })
  } catch (error) {
    // Not comparable is not the same as equal.
    if (sqlstate(error) === null) throw error
    return [`the transition table could not be compared: ${error instanceof Error ? error.message : String(error)}`]
  }
}

/** Names that version 1 and later create, taken from the migrations themselves. */
async function missingObjects(connection: Connection): Promise<string[]> {
  const text = migrations(0).map(s => s.sql)
  const constraints = text.flatMap(sql => [...sql.matchAll(/constraint (\w+) (?:check|unique|foreign key)/g)].map(m => m[1] ?? ''))
  const indexes = text.flatMap(sql => [...sql.matchAll(/^create (?:unique )?index (\w+)/g)].map(m => m[1] ?? ''))
  const triggers = text.flatMap(sql =>
    [...sql.matchAll(/^create trigger (\w+) before \w+ on ([\w.]+)/g)].map(m => ({ name: m[1], on: m[2] })),
  )
  const found = await connection.query(
    'read',
    `select 'constraint ' || n.name as missing from unnest($1::text[]) as n(name)
where not exists (select 1 from pg_constraint c where c.conname = n.name and c.convalidated
  and c.connamespace = 'homeregion_control'::regnamespace)
union all
select 'index ' || n.name from unnest($2::text[]) as n(name)
where not exists (select 1 from pg_class c join pg_index i on i.indexrelid = c.oid and i.indisvalid where c.relname = n.name
  and c.relnamespace = 'homeregion_control'::regnamespace)
union all
select 'trigger ' || n.name from jsonb_to_recordset($3::jsonb) as n(name text, "on" text)
where not exists (select 1 from pg_trigger t where t.tgname = n.name and t.tgrelid = to_regclass(n."on") and t.tgenabled in ('O', 'A'))`,
    [constraints, indexes, JSON.stringify(triggers)],
  )
  return found.rows.map(row => `${String(row.missing)} is missing, disabled or not validated`)
}

/** What the login can do against what `init` grants it. */
async function privilegeProblems(connection: Connection, config: Config): Promise<string[]> {
  const expected = GRANTS.flatMap(g => [
    ...(g.insert ?? []).map(column => ({ table: g.table, column, privilege: 'INSERT' })),
    ...(g.update ?? []).map(column => ({ table: g.table, column, privilege: 'UPDATE' })),
  ])
  const [lacking, surplus] = await Promise.all([
    connection.query(
      'read',
      `select distinct e.privilege || ' on ' || e."table" as lacks from jsonb_to_recordset($1::jsonb) as e("table" text, "column" text, privilege text)
where not has_column_privilege('homeregion_control.' || e."table", e."column", e.privilege) order by 1`,
      [JSON.stringify(expected)],
    ),
    connection.query(
      'read',
      `select p.privilege || ' on ' || c.relname as has from pg_class c, unnest(array['UPDATE', 'DELETE', 'TRUNCATE']) as p(privilege)
where c.relnamespace = 'homeregion_control'::regnamespace and c.relkind = 'r' and has_table_privilege(c.oid, p.privilege) order by 1`,
    ),
  ])
  const operator = loginUser(config.controlPlane.operator.url) ?? 'the operator login'
  const has = surplus.rows.map(row => String(row.has))
  return [
    ...lacking.rows.map(row => `${operator} lacks ${String(row.lacks)}`),
    ...(has.length === 0
      ? []
      : [`${operator} could rewrite the record: it has ${has.slice(0, 3).join(', ')}${has.length > 3 ? ', …' : ''}`]),
  ]
}
