import type { Statement } from '../postgres/connection.ts'
import { REFUSAL } from './refusals.ts'
import { CONTROL_PLANE_VERSION } from './schema.ts'

/** Goes first in every transaction that begins something, so that an older tool changes nothing in a newer schema. */
export function requireVersion(): Statement {
  return {
    sql: `select homeregion_control.require(
  (select max(version) from homeregion_control.schema_version) = $1, '${REFUSAL.version}', 'the schema has another version')`,
    parameters: [CONTROL_PLANE_VERSION],
  }
}
