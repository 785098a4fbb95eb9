import { randomUUID } from 'node:crypto'
import { existsSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import type { SandboxRegion } from '../../sandbox/layout.ts'
import { signal } from '../../sandbox/processes.ts'
import { holds } from '../../sandbox/recorder.ts'
import { packageFile } from '../../src/adapters/files/package-root.ts'
import { commitDirect, directWrite, epochIn } from './direct-write.ts'
import { useFailoverScene } from './failover-scene.ts'
import { eventually, runIdOf } from './scene.ts'

/** One story, in its order: region-a dies with writes that nobody else has, comes back, is cleaned up, and gets its keys again. */
let folder = ''
const scene = useFailoverScene({
  services: true,
  change: (config, dir) => {
    folder = dir
    delete config.regions['region-a']?.lease
    // Takes the write from stdin; whatever stands in it is data.
    const script = join(dir, 'reapply.mjs')
    writeFileSync(
      script,
      `import { appendFileSync, readFileSync } from 'node:fs'
const write = JSON.parse(readFileSync(0, 'utf8'))
if (write.item !== process.env.HOMEREGION_ITEM) process.exit(3)
appendFileSync(${JSON.stringify(join(dir, 'reapplied.jsonl'))}, JSON.stringify({ ...write, to: process.env.HOMEREGION_TARGET }) + '\\n')
`,
    )
    Object.assign(config, { reapply: { command: [process.execPath, script] } })
  },
})
const HOSTILE = '=cmd|\u001b[31m,"x"'
let run = ''
const lost: string[] = []

async function write(key: string, region: SandboxRegion, account = 'account-0'): Promise<string> {
  const client = await scene.rig.pg(region, 'app_writer')
  const answer = await commitDirect(client, directWrite(key, region, await epochIn(client, key), account))
  await client.end()
  if (answer.ack === null) throw new Error(`refused: ${answer.sqlstate}`)
  return answer.ack.idempotencyKey
}

function suspend(region: SandboxRegion, how: 'SIGSTOP' | 'SIGCONT'): void {
  const service = scene.rig.running.services.find(s => s.region === region)
  if (service === undefined) throw new Error(`${region} has no service`)
  expect(signal(scene.rig.sandbox.processes.list().find(p => p.name === service.process.name) ?? service.process, how)).toBe(true)
}

async function arrived(id: string, key: string, region: SandboxRegion): Promise<boolean> {
  const client = await scene.rig.pg(region)
  const { rowCount } = await client.query('select from idempotency where tenant_id = $1 and idempotency_key = $2', [key, id])
  await client.end()
  return rowCount === 1
}

async function accounts(region: SandboxRegion): Promise<readonly unknown[]> {
  const client = await scene.rig.pg(region)
  const { rows } = await client.query<Record<string, unknown>>(
    `select tenant_id, account_id, version::int, updated_at::text from account where tenant_id in ('s14', 'back') order by 1, 2`,
  )
  await client.end()
  return rows
}

const rejoin = async () => await scene.cli(['rejoin', 'region-a', '--reason', 'power is back', '--yes'])
/** The shipped runbook; its first gate waits 2 s, where 30 would be waited for nothing. */
const failbackRunbook = () => {
  const file = join(folder, 'failback.yaml')
  writeFileSync(file, readFileSync(packageFile('runbooks', 'failback.yaml'), 'utf8').replace('within: 30s', 'within: 2s'))
  return file
}
const failback = async (more: readonly string[] = []) =>
  await scene.cli(['failback', run, '--confirm', 'back', '--confirm-count', '2', '--observe', '0s', ...more])
const said = ({ stdout, stderr }: { stdout: string; stderr: string }) => stdout + stderr

describe('a source that comes back with writes beyond the cut', () => {
  it('is fenced first; exactly those writes are listed, none is applied, and it stays out until each is decided', async () => {
    await scene.register(['s14', 'back'])
    const before = await Promise.all(['s14', 'back'].map(async key => ({ key, id: await write(key, 'region-a') })))
    await eventually('region-b has what was written', async () =>
      (await Promise.all(before.map(async b => await arrived(b.id, b.key, 'region-b')))).every(there => there),
    )
    suspend('region-a', 'SIGSTOP')
    lost.push(await write('s14', 'region-a'), await write('s14', 'region-a', HOSTILE))
    await scene.kill('region-a')
    await scene.observe()
    await eventually(
      "region-a is dark, and its keys are region-b's",
      async () => {
        const forced = await scene.cli([
          ...['failover', 's14', 'back', '--from', 'region-a', '--to', 'region-b', '--force', '--observe', '0s'],
          ...['--confirm-count', '2', '--fence', 'external', '--rpo-ack', 'any'],
        ])
        if (forced.code !== 0 && !forced.stderr.includes('is not dark')) throw new Error(said(forced))
        if (forced.code === 0) run = runIdOf(forced.stdout)
        return forced.code === 0
      },
      60_000,
    )
    await write('s14', 'region-b')
    expect((await failback(['--reason', 'too early'])).code).toBe(4)

    await scene.rig.sandbox.up()
    const refused = await rejoin()
    expect(refused.code, said(refused)).toBe(3)
    expect(refused.stderr).toMatch(/^error: 2 writes that only one side has are not decided/m)
    await expect(write('s14', 'region-a')).rejects.toThrow(/HR001/)
    const listed = await scene.cli(['reconcile', run, '-o', 'json'])
    expect(listed.code, said(listed)).toBe(0)
    const { items } = JSON.parse(listed.stdout) as { items: { key: string; kind: string; content: unknown }[] }
    expect(items.map(i => [i.key, i.kind])).toEqual([
      ['s14', 'event'],
      ['s14', 'event'],
    ])
    for (const id of lost) {
      expect(JSON.stringify(items)).toContain(id)
      expect(await arrived(id, 's14', 'region-b')).toBe(false)
    }
  })

  it('the list is safe to look at and to open; decisions go through the command or into a file, and stand', async () => {
    const table = await scene.cli(['reconcile', run])
    expect(table.stdout).toContain('2 writes only one side has, 2 undecided')
    expect(table.stdout).not.toContain('\u001b')
    const csv = join(folder, 'lost.csv')
    expect((await scene.cli(['reconcile', run, '--csv', csv])).code).toBe(0)
    expect(readFileSync(csv, 'utf8')).not.toMatch(/(^|,)"?=/m)
    const { items } = JSON.parse((await scene.cli(['reconcile', run, '-o', 'json'])).stdout) as {
      items: { id: string; content: { aggregateId: string } }[]
    }
    const [hostile, plain] = [items.find(i => i.content.aggregateId === HOSTILE), items.find(i => i.content.aggregateId !== HOSTILE)]
    const decide = async (item: string | undefined, decision: string, more: readonly string[] = []) =>
      await scene.cli(['reconcile', run, decision, '--decide', item ?? '', '--reason', 'seen by ada', ...more])
    expect((await scene.cli(['reconcile', run, 'drop', '--all-of', 's14'])).code).toBe(64)
    const file = join(folder, 'exported.jsonl')
    const exported = await decide(plain?.id, 'exported', ['--file', file])
    expect(exported.code, said(exported)).toBe(0)
    expect(JSON.parse(readFileSync(file, 'utf8'))).toMatchObject({ id: plain?.id, key: 's14' })
    const again = await decide(hostile?.id, 'reapply')
    expect(again.code, said(again)).toBe(0)
    expect(JSON.parse(readFileSync(join(folder, 'reapplied.jsonl'), 'utf8'))).toMatchObject({
      ...{ item: hostile?.id, key: 's14', to: 'region-b' },
      content: { aggregateId: HOSTILE },
    })
    expect((await decide(plain?.id, 'drop')).code).toBe(5)
  })

  it('then it is brought level and may own again, wherever the command was killed on the way', async () => {
    // Every point is tried without a process in test/integration/rejoin.test.ts.
    for (const point of ['fenced', 'listed', 'levelled', 'lifted']) {
      const killed = await scene.cli(['rejoin', 'region-a', '--reason', 'power is back', '--yes'], {
        env: { HOMEREGION_FAULT: `kill@rejoin:${point}` },
      })
      expect(killed.signal, `${point}: ${said(killed)}`).toBe('SIGKILL')
      await expect(write('s14', 'region-a')).rejects.toThrow(/HR00/)
    }
    const back = await rejoin()
    expect(back.code, said(back)).toBe(0)
    expect(await accounts('region-a')).toEqual(await accounts('region-b'))
    expect(back.stdout).toMatch(/region-a is back/)
    expect(back.stderr).toMatch(/^runbook rejoin \(runbooks\/rejoin.yaml, [0-9a-f]{12}\), pinned /m)
    expect(existsSync(scene.fenceFile)).toBe(true)
    expect(back.stdout).toMatch(/fence uplink of region-a is applied/)
    const lifted = await scene.cli(['fence', 'lift', 'region-a', '--as-target', '--reason', 'power is back', '--yes'])
    expect(lifted.code, said(lifted)).toBe(0)
  })
})

describe('the way back', () => {
  it('waits for the cool-down, and for a reverse stream that is up', async () => {
    const hot = await failback()
    expect(hot.code, said(hot)).toBe(3)
    expect(hot.stderr).toContain('policy.coolDown')
    suspend('region-a', 'SIGSTOP')
    const id = randomUUID()
    await write('back', 'region-b', id)
    const deaf = await failback(['--reason', 'corrective', '--runbook', failbackRunbook()])
    expect(deaf.code, said(deaf)).toBe(3)
    expect(said(deaf)).toContain('replication-behind')
    expect(await scene.record('back')).toBe('ACTIVE region-b epoch 2')
    suspend('region-a', 'SIGCONT')
  })

  it('is a planned move under load that loses and doubles nothing', async () => {
    const load = scene.rig.load({ tenants: ['back'], home: 'region-b' })
    await eventually('the load writes', () => load.acks.length > 20)
    const moved = await failback(['--reason', 'corrective'])
    expect(moved.code, said(moved)).toBe(0)
    expect(await scene.record('back')).toBe('ACTIVE region-a epoch 3')
    const count = load.acks.length
    await eventually('the load writes at region-a', () => load.acks.length > count + 20)
    await load.stop()
    const findings = await scene.rig.verify(load.acks)
    // The write that was given up has its version in the old home's outbox still, beside the new home's own.
    expect({ ...findings, versionGaps: findings.versionGaps.filter(gap => !gap.includes('"s14"')) }).toSatisfy(holds)
    const there = await scene.cli(['transfer', 'back', '--back', '--confirm', 'back', '--observe', '0s', '--reason', 'and once more'])
    expect(there.code, said(there)).toBe(0)
    expect(await scene.record('back')).toBe('ACTIVE region-b epoch 4')
  })
})
