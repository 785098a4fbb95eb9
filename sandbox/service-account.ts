import type { ServiceTransaction } from '../src/adapters/postgres/service-pool.ts'
import type { Json } from '../src/domain/evidence.ts'
import type { ServiceEvent } from '../src/service/envelope.ts'
import type { Change } from '../src/service/guarded-write.ts'
import type { Applier } from '../src/service/inbox-apply.ts'

/** The one thing the reference service does: it keeps the billing address of accounts. */
export const ADDRESS_CHANGED = 'account.address-changed'

export async function changeAddress(
  tx: ServiceTransaction,
  under: { readonly region: string; readonly epoch: number },
  request: { readonly tenant: string; readonly accountId: string; readonly address: string },
): Promise<Change> {
  const { tenant, accountId, address } = request
  // The row's lock makes the versions of one account consecutive: two changes at once get different ones.
  const { rows } = await tx.query({
    name: 'account-change',
    sql: `insert into public.account as a (tenant_id, account_id, version, billing_address) values ($1, $2, 1, $3)
on conflict (tenant_id, account_id) do update set version = a.version + 1, billing_address = excluded.billing_address, updated_at = clock_timestamp()
returning version`,
    parameters: [tenant, accountId, address],
  })
  const version = rows[0]?.['version'] as number
  return {
    aggregateType: 'account',
    aggregateId: accountId,
    aggregateVersion: version,
    eventType: ADDRESS_CHANGED,
    data: { accountId, version, address },
    response: { tenant, accountId, version, epoch: under.epoch, region: under.region },
  }
}

export const accountApplier: Applier = {
  understands: type => type === ADDRESS_CHANGED,
  apply: async (tx, event) => {
    const { rows } = await tx.query({
      name: 'account-apply',
      sql: `insert into public.account as a (tenant_id, account_id, version, billing_address)
select $1, $2, $3::bigint, $4
where $3::bigint = 1 or exists (select from public.account p where p.tenant_id = $1 and p.account_id = $2 and p.version = $3::bigint - 1)
on conflict (tenant_id, account_id) do update set version = excluded.version, billing_address = excluded.billing_address, updated_at = clock_timestamp()
where a.version = excluded.version - 1
returning version`,
      parameters: [event.key, event.aggregateId, event.aggregateVersion, addressOf(event)],
    })
    return rows.length > 0
  },
  version: async (tx, event) => {
    const { rows } = await tx.query({
      name: 'account-version',
      sql: 'select version from public.account where tenant_id = $1 and account_id = $2',
      parameters: [event.key, event.aggregateId],
    })
    return (rows[0]?.['version'] as number | undefined) ?? 0
  },
}

function addressOf(event: ServiceEvent): string {
  const data = event.data as { readonly address?: Json } | null
  return typeof data?.address === 'string' ? data.address : ''
}
