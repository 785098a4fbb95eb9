import type { Config } from '../../../domain/config.ts'
import type { ReconcileFinding } from '../../../domain/failover.ts'
import type { LostKey } from '../../../domain/recovery.ts'
import type { ServiceTransaction } from '../../postgres/service-pool.ts'
import { identifier, relation } from '../quoting.ts'
import { eventItemId, KEYS_AND_EPOCHS, typeOf } from './lost-events.ts'
import { rowsOf } from './session.ts'

/**
 * Events of the ended epoch that the home has applied and the source's outbox does not have (any more). An outbox is trimmed from its old end, and
 * a crash takes its newest rows: so what came after the newest event that both still have was lost with the source's database. A source that
 * still has none of a key's events has been trimmed, unless its rows are behind what the home had applied; those are found among the rows.
 */
export async function findPhantoms(
  config: Config,
  keys: readonly LostKey[],
  atSource: ReadonlySet<string>,
  home: ServiceTransaction,
): Promise<readonly ReconcileFinding[]> {
  const { inbox } = config
  const c = inbox.columns
  const key = { key: identifier(c.key), keyType: await typeOf(home, relation(inbox), c.key) }
  const rows = await rowsOf(
    home,
    `select t.${identifier(c.eventId)}::text as id, t.${key.key}::text as key, t.${identifier(c.ownerEpoch)}::bigint as epoch, t.${identifier(c.appliedAt)}::text as at
from ${KEYS_AND_EPOCHS(key, `${relation(inbox)} t`)}
where t.${identifier(c.ownerEpoch)} = k.epoch and not exists (select from homeregion.quarantine q where q.event_id = t.${identifier(c.eventId)}::text)
order by 2, t.${identifier(c.appliedAt)} desc`,
    [keys.map(k => k.key), keys.map(k => k.epoch)],
  )
  const found: ReconcileFinding[] = []
  for (const { key: name } of keys) {
    const newestFirst = rows.filter(row => row.key === name)
    const last = newestFirst.findIndex(row => atSource.has(String(row.id)))
    if (last <= 0) continue
    for (const row of newestFirst.slice(0, last))
      found.push({
        id: eventItemId(String(row.id)),
        key: name,
        kind: 'phantom',
        subject: `event ${String(row.id)}, applied at the new home and lost at the old one`,
        content: { eventId: String(row.id), ownerEpoch: Number(row.epoch), appliedAt: String(row.at), appliedAtHome: true },
      })
  }
  return found
}
