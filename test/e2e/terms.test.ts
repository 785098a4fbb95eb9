import { describe, expect, it } from 'vitest'
import type { SandboxRegion } from '../../sandbox/layout.ts'
import type { Acknowledged } from '../../sandbox/load.ts'
import { commitDirect, directWrite } from './direct-write.ts'
import { eventually, useScene } from './scene.ts'

const scene = useScene(['term-retry', 'term-stale', 'term-barrier'])

describe('after a move', () => {
  it('a request that was committed at the source is answered from the carried record, and committed once', async () => {
    const key = scene.key('term-retry')
    const order = { tenant: key, accountId: 'account-1', idempotencyKey: `order-${key}`, address: '1 Main Street' }
    const sentAtMs = performance.now()
    // The answer is lost on its way to the client, which knows nothing of what it says.
    const lost = await post('region-a', order)
    expect(lost.status).toBe(200)
    const moved = await scene.transfer(key, 'region-b')
    expect(moved.code, moved.stdout + moved.stderr).toBe(0)
    const retried = await post('region-b', order)
    expect(retried).toEqual({
      status: 200,
      body: { tenant: key, accountId: 'account-1', version: 1, epoch: 1, region: 'region-a', replayed: true },
    })
    scene.remember(acknowledged(retried.body, order, sentAtMs))
    const after = await post('region-b', { ...order, idempotencyKey: `${order.idempotencyKey}-2` })
    expect(after.body).toMatchObject({ version: 2, epoch: 2, region: 'region-b', replayed: false })
    await scene.writableOnlyAt(key, 'region-b', 2)
  })

  it('there and back, a request of the first term is refused as stale, and counted', async () => {
    const key = scene.key('term-stale')
    const order = { tenant: key, accountId: 'account-1', address: '1 Main Street', epoch: 1 }
    expect((await post('region-a', { ...order, idempotencyKey: `first-${key}` })).status).toBe(200)
    for (const to of ['region-b', 'region-a'] as const) {
      const moved = await scene.transfer(key, to)
      expect(moved.code, moved.stdout + moved.stderr).toBe(0)
    }
    const before = await staleCount()
    const late = await post('region-a', { ...order, idempotencyKey: `late-${key}` })
    expect(late).toMatchObject({ status: 409, body: { error: 'staleEpoch', sqlstate: 'HR002', homeRegion: 'region-a', epoch: 3 } })
    const writer = await scene.rig.pg('region-a', 'app_writer')
    expect(await commitDirect(writer, directWrite(key, 'region-a', 1))).toEqual({ ack: null, sqlstate: 'HR002' })
    expect(await commitDirect(writer, directWrite(key, 'region-a', 2))).toEqual({ ack: null, sqlstate: 'HR002' })
    expect((await staleCount()) - before).toBeGreaterThanOrEqual(3)
    await scene.writableOnlyAt(key, 'region-a', 3)
  })

  it('a barrier that is delivered again, behind events of the next term, is applied once and disturbs nothing', async () => {
    const key = scene.key('term-barrier')
    await scene.write(key, 'region-a')
    const there = await scene.transfer(key, 'region-b')
    expect(there.code, there.stdout + there.stderr).toBe(0)
    await scene.write(key, 'region-b')
    const source = await scene.rig.pg('region-a')
    const target = await scene.rig.pg('region-b')
    const applied = async () =>
      (
        await target.query<{ event_id: string; applied_at: string }>(
          `select event_id::text, applied_at::text from public.inbox where tenant_id = $1 order by event_id`,
          [key],
        )
      ).rows
    const before = await applied()
    expect(before).toHaveLength(2)
    // The broker's acknowledgement was lost: the relay sends all of the first term once more, the barrier among it, twice over.
    for (let round = 0; round < 2; round += 1) {
      await source.query('update public.outbox set published_at = null where tenant_id = $1', [key])
      await source.query('notify outbox')
      await eventually('the relay has sent it again', async () => {
        const { rowCount } = await source.query('select 1 from public.outbox where tenant_id = $1 and published_at is null', [key])
        return rowCount === 0
      })
    }
    const back = await scene.transfer(key, 'region-a')
    expect(back.code, back.stdout + back.stderr).toBe(0)
    await scene.write(key, 'region-a')
    // What was sent before this write's way to the target has been read there when the key can move again: replication is caught up.
    const again = await scene.transfer(key, 'region-b')
    expect(again.code, again.stdout + again.stderr).toBe(0)
    expect((await applied()).slice().filter(row => before.some(b => b['event_id'] === (row as { event_id: string }).event_id))).toEqual(
      before,
    )
    await scene.writableOnlyAt(key, 'region-b', 4)
  })
})

type Answer = { readonly status: number; readonly body: Record<string, unknown> }

/** Sent as if a gateway had forwarded it already: the region answers itself. */
async function post(region: SandboxRegion, body: Record<string, unknown>): Promise<Answer> {
  const response = await fetch(`${scene.rig.serviceUrl(region)}/write`, {
    method: 'POST',
    headers: { 'content-type': 'application/json', 'x-homeregion-hops': '1' },
    body: JSON.stringify({ epoch: null, ...body }),
    signal: AbortSignal.timeout(30_000),
  })
  return { status: response.status, body: (await response.json()) as Record<string, unknown> }
}

function acknowledged(body: Record<string, unknown>, order: { idempotencyKey: string }, sentAtMs: number): Acknowledged {
  return {
    idempotencyKey: order.idempotencyKey,
    key: String(body['tenant']),
    accountId: String(body['accountId']),
    version: Number(body['version']),
    epoch: Number(body['epoch']),
    region: String(body['region']),
    replayed: true,
    sentAtMs,
    lastSentAtMs: sentAtMs,
    ackedAtMs: performance.now(),
    attempts: 2,
  }
}

async function staleCount(): Promise<number> {
  const { rows } = await (await scene.rig.pg('region-a')).query<{ n: number }>('select stale_epoch::int as n from homeregion.rejections()')
  return rows[0]?.n ?? Number.NaN
}
