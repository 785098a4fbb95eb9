import { createServer, type Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { stepBefore } from './runbooks.ts'
import { runIdOf, stopped, useScene } from './scene.ts'

const scene = useScene(['step-fails', 'step-hangs', 'step-silent', 'step-garbage', 'step-answers', 'target-mute', 'target-readonly'])

let server: Server
beforeAll(async () => {
  // /silent never answers; /broken answers what nobody asked for.
  server = createServer((request, response) => {
    if (request.url === '/broken') response.writeHead(500).end('\u001b[2J<!channel> not JSON')
  })
  await new Promise<void>(resolve => server.listen(0, '127.0.0.1', resolve))
})
afterAll(() => {
  server.closeAllConnections()
  server.close()
})

describe.concurrent('a step of the author that fails after the fence gives the key back to the source under a new epoch', () => {
  it.each([
    [
      'step-fails',
      () => exec(['/bin/sh', '-c', 'echo the firewall said no; exit 3']),
      'ended with exit code 3 for KEY: the firewall said no',
    ],
    ['step-hangs', () => exec(['/bin/sleep', '600']), 'ended with exit code 124 for KEY'],
    ['step-garbage', () => exec(['/bin/sh', '-c', `printf '\\033[2J\\007%s' '<!channel>'; exit 1`]), 'ended with exit code 1 for KEY'],
    ['step-silent', () => http('/silent'), 'did not answer'],
    ['step-answers', () => http('/broken'), 'answered 500, expected 200'],
  ])('%s', async (name, step, fact) => {
    const key = scene.key(name)
    await scene.write(key, 'region-a')
    const run = await scene.transfer(key, 'region-b', ['--runbook', scene.runbook([stepBefore('catch-up', step())])])
    expect(run.code, run.stdout + run.stderr).toBe(6)
    expect(run.stdout).toContain(fact.replace('KEY', key))
    expect(run.stdout).toContain(`state: ${key} is written at region-a again, epoch 2: read back`)
    // Nothing of what the step printed acts on a terminal.
    expect(run.stdout + run.stderr).not.toMatch(/[^\P{Cc}\n\t]/u)
    await scene.writableOnlyAt(key, 'region-a', 2)
  })
})

describe('a target that cannot write', () => {
  it('after the activation is found by the probe: nothing is taken back, and resume finishes when it is mended', async () => {
    const key = scene.key('target-mute')
    await scene.write(key, 'region-a')
    const target = await scene.rig.pg('region-b')
    const run = scene.startTransfer(key, 'region-b', [], { env: { HOMEREGION_FAULT: 'stop@activate:verified' } })
    try {
      await stopped(run)
      await target.query('revoke insert on public.account from app_writer')
      run.child.kill('SIGCONT')
      const end = await run.done
      expect(end.code, end.stdout + end.stderr).toBe(7)
      expect(end.stdout).toMatch(/target-accepts-write: fail: app_writer on public\.account: permission denied for table account/)
      expect(end.stdout).toContain(`state: ${key} is region-b's since epoch 2; there is no way back, only forward.`)
      expect(end.stdout).toContain(`next:  homeregion resume ${runIdOf(end.stdout)}`)
    } finally {
      await target.query('grant insert on public.account to app_writer')
    }
    const resumed = await scene.rig.cli(['resume', runIdOf(run.output()), '--observe', '0s'])
    expect(resumed.code, resumed.stdout + resumed.stderr).toBe(0)
    await scene.writableOnlyAt(key, 'region-b', 2)
  })

  it('before the drain is refused with every reason in one report', async () => {
    const key = scene.key('target-readonly')
    const target = await scene.rig.pg('region-b')
    const { rows } = await target.query<{ name: string; always: boolean }>(
      `select tgname as name, tgenabled = 'A' as always from pg_trigger
       where tgrelid = 'public.account'::regclass and tgname like 'zzz_homeregion%' and tgtype & 4 = 4`,
    )
    const trigger = target.escapeIdentifier(rows[0]?.name ?? '')
    try {
      await target.query('alter database app set default_transaction_read_only = on')
      await target.query('set default_transaction_read_only = off')
      await target.query(`alter table public.account disable trigger ${trigger}`)
      const run = await scene.transfer(key, 'region-b')
      expect(run.code, run.stdout + run.stderr).toBe(3)
      expect(run.stderr).toMatch(/boundary-installed: fail: .*region-b: .*account.*disabled/)
      expect(run.stderr).toMatch(/target-can-write: fail: region-b is read-only \(default_transaction_read_only\)/)
      expect(run.stderr).toMatch(/^state: Nothing was moved; no boundary was touched\.$/m)
    } finally {
      await target.query(`alter table public.account enable ${rows[0]?.always === true ? 'always' : ''} trigger ${trigger}`)
      await target.query('alter database app reset default_transaction_read_only')
    }
    await scene.writableOnlyAt(key, 'region-a', 1)
  })
})

function exec(command: readonly string[]): string {
  return `  - id: author\n    title: The author's own step\n    action: { exec: { command: ${JSON.stringify(command)}, timeout: 2s } }`
}

function http(path: string): string {
  const { port } = server.address() as AddressInfo
  return `  - id: author\n    title: The author's own step\n    action: { http: { url: "http://127.0.0.1:${port}${path}", timeout: 2s } }`
}
