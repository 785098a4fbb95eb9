import { HomeregionError } from '../../domain/errors.ts'
import { epochAfter, type OwnershipRecord, transition } from '../../domain/ownership.ts'
import type { Connection, Statement } from '../postgres/connection.ts'
import { appendAudit } from './audit-chain.ts'
import { regionExiled } from './forced-refusal.ts'
import { OWNERSHIP_COLUMNS, ownershipRecord } from './ownership-records.ts'
import { REFUSAL, sqlstate, violated } from './refusals.ts'
import { requireVersion } from './schema-version.ts'
import { storableJson } from './storable-json.ts'

export type Registration = { readonly key: string; readonly homeRegion: string }

// One statement's parameter stays at about a megabyte.
const CHUNK = 10_000
// Measured at 0.1 ms a key on a small machine; ten times that before a big import is given up on.
const MS_PER_KEY = 1

/** All or none, in one transaction, whatever their number. */
export async function registerKeys(
  connection: Connection,
  keys: readonly Registration[],
  callTimeoutMs: number,
): Promise<readonly OwnershipRecord[]> {
  if (keys.length === 0) return []
  const chunks = Array.from({ length: Math.ceil(keys.length / CHUNK) }, (_, i) => keys.slice(i * CHUNK, (i + 1) * CHUNK))
  const audit = appendAudit({
    event: 'keys-registered',
    runId: null,
    key: keys.length === 1 ? (keys[0]?.key ?? null) : null,
    detail: { keys: keys.length, homeRegions: [...new Set(keys.map(k => k.homeRegion))], first: keys.slice(0, 100).map(k => k.key) },
  })
  try {
    const statements = [requireVersion(), requireNoExile(keys), ...chunks.map(registerChunk), ...audit]
    const answers = await connection.transaction('write', statements, callTimeoutMs + keys.length * MS_PER_KEY)
    return answers.slice(2, 2 + chunks.length).flatMap(a => a.rows.map(ownershipRecord))
  } catch (error) {
    if (sqlstate(error) === REFUSAL.exiled) throw regionExiled(keys[0]?.homeRegion ?? '', error)
    if (violated(error) !== 'ownership_log_pkey') throw error
    throw await keyExists(connection, keys, error)
  }
}

/** A region in exile owns nothing new. */
function requireNoExile(keys: readonly Registration[]): Statement {
  return {
    sql: `select homeregion_control.require(not exists (
  select 1 from homeregion_control.region_standing s where s.exiled and s.region = any($1::text[])), '${REFUSAL.exiled}', 'a home region is in exile')`,
    parameters: [[...new Set(keys.map(k => k.homeRegion))]],
  }
}

function registerChunk(keys: readonly Registration[]): Statement {
  return {
    sql: `with asked as (
  select * from jsonb_to_recordset($1::jsonb) as k(key text, home text)
), logged as (
  insert into homeregion_control.ownership_log (key, seq, transition, to_state, to_home, to_epoch, to_target, run_id, token)
  select key, 1, 'register', $2::text, home, $3::bigint, '', '', 0 from asked
  returning key, seq, to_state, to_home, to_epoch, to_target, run_id
)
insert into homeregion_control.ownership as o (key, seq, state, home_region, epoch, target_region, run_id)
select * from logged
returning ${OWNERSHIP_COLUMNS}`,
    parameters: [storableJson(keys.map(k => ({ key: k.key, home: k.homeRegion }))), transition('register').to, epochAfter('register', 0)],
  }
}

async function keyExists(connection: Connection, keys: readonly Registration[], cause: unknown): Promise<HomeregionError> {
  const found = await connection.query(
    'read',
    `select key, home_region from homeregion_control.ownership
    where key in (select key from jsonb_to_recordset($1::jsonb) as k(key text)) order by key limit 10`,
    [storableJson(keys.map(k => ({ key: k.key })))],
  )
  const known = found.rows.map(row => `${String(row.key)} (home ${String(row.home_region)})`)
  // No row: the same key was named twice in this call.
  const which = known.length > 0 ? `registered already: ${known.join(', ')}` : 'a key is named twice'
  return new HomeregionError(
    'key-exists',
    { fact: which, state: 'None of the keys was registered.', next: 'homeregion key list' },
    { cause, fields: { keys: found.rows.map(row => row.key) } },
  )
}
