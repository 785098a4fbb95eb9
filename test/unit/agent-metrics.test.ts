import { expect, test } from 'vitest'
import { serveAgent } from '../../src/agent/http.ts'
import { createMetrics } from '../../src/agent/metrics.ts'

test('a figure that is not known is left out, labels are escaped, counters rise', () => {
  const metrics = createMetrics()
  metrics.set('homeregion_outbox_unpublished', { region: 'a"\n\\' }, 3)
  metrics.set('homeregion_outbox_unpublished', { region: 'b' }, null)
  metrics.live('homeregion_agent_leading', {}, () => null)
  metrics.count('homeregion_alarms_total', { kind: 'lease-over' })
  metrics.count('homeregion_alarms_total', { kind: 'lease-over' })
  expect(metrics.text()).toBe(
    [
      '# HELP homeregion_outbox_unpublished committed events that have not left the outbox',
      '# TYPE homeregion_outbox_unpublished gauge',
      'homeregion_outbox_unpublished{region="a\\"\\n\\\\"} 3',
      '# HELP homeregion_alarms_total alarms raised',
      '# TYPE homeregion_alarms_total counter',
      'homeregion_alarms_total{kind="lease-over"} 2',
      '',
    ].join('\n'),
  )
})

test('/healthz is 503 while something is wrong, and says what', async () => {
  const problems: string[] = []
  const http = await serveAgent('127.0.0.1:0', createMetrics(), () => ({ ok: problems.length === 0, leading: true, problems }))
  try {
    const get = async (path: string, method = 'GET') => await fetch(`http://${http.address}${path}`, { method })
    expect((await get('/healthz')).status).toBe(200)
    problems.push('the lease of region-a is not renewed')
    const bad = await get('/healthz')
    expect([bad.status, await bad.json()]).toEqual([503, { ok: false, leading: true, problems }])
    expect((await get('/metrics')).headers.get('content-type')).toContain('version=0.0.4')
    expect([(await get('/x')).status, (await get('/metrics', 'POST')).status]).toEqual([404, 405])
    await expect(serveAgent(http.address, createMetrics(), () => ({ ok: true, leading: true, problems }))).rejects.toMatchObject({
      code: 'config-invalid',
    })
  } finally {
    await http.close()
  }
})
