import { type ChildProcess, spawn, spawnSync } from 'node:child_process'
import { createInterface } from 'node:readline'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { packageFile } from '../../src/adapters/files/package-root.ts'
import { createHooks } from '../../src/adapters/hooks/command-hooks.ts'
import { createExecFence } from '../../src/adapters/hooks/exec-fence.ts'
import type { RegionConfig } from '../../src/domain/config.ts'
import { liftStanding } from '../rig/lift-standing.ts'
import { codedError } from '../unit/coded-error.ts'
import { CAUSE, createMemoryNotes } from '../unit/fence-sample.ts'

const DATABASE_PORT = 5432
const OTHER_PORT = 6000

// In a namespace of its own: the fence must never touch the network of this machine.
const NAMESPACE = ['--net', '--', 'sh', '-c', 'ip link set lo up && exec "$@"', 'sh']

/** Why it cannot be tried here, or null. */
function missing(tool: string): string | null {
  if (process.getuid?.() !== 0) return 'needs root'
  const tried = spawnSync('unshare', [...NAMESPACE, tool, ...(tool === 'nft' ? ['list', 'tables'] : ['-S'])], { encoding: 'utf8' })
  if (tried.error !== undefined) return tried.error.message
  return tried.status === 0 ? null : `${tool} cannot be used in a network namespace: ${tried.stderr.trim()}`
}

// A server on both ports, one connection to each that stays open, and one line of answer to each line of question.
const WORLD = `
const net = require('node:net')
const rl = require('node:readline').createInterface({ input: process.stdin })
const echo = port => new Promise(done => net.createServer(s => { s.on('error', () => {}); s.pipe(s) }).listen(port, '0.0.0.0', done))
const connect = (port, from) => new Promise(done => {
  const s = net.connect({ port, host: '127.0.0.1', localAddress: from, timeout: 1500 })
  s.once('connect', () => done(s)); s.once('timeout', () => (s.destroy(), done(null))); s.on('error', () => done(null))
})
const alive = s => new Promise(done => {
  if (s.destroyed) return done(false)
  const late = setTimeout(() => done(false), 1500)
  const end = yes => (clearTimeout(late), done(yes))
  s.once('data', () => end(true)); s.once('close', () => end(false)); s.once('error', () => end(false)); s.write('x')
})
;(async () => {
  await echo(${DATABASE_PORT}); await echo(${OTHER_PORT})
  const held = await connect(${DATABASE_PORT}, '127.0.0.1')
  console.log('ready')
  for await (const line of rl) {
    const [what, port, from] = line.split(' ')
    if (what === 'held') console.log(await alive(held))
    else { const s = await connect(Number(port), from); console.log(s !== null && await alive(s)); s?.destroy() }
  }
})()`

describe.each([
  ['nft', 'nftables.sh'],
  ['iptables', 'iptables.sh'],
])('a fence by %s', (tool, script) => {
  const reason = missing(tool)
  const wanted = reason === null ? it : it.skip
  if (reason !== null) it.skip(`is not tried here: ${reason}`, () => undefined)

  let world: ChildProcess | undefined
  let answers: AsyncIterator<string> | undefined
  beforeAll(async () => {
    if (reason !== null) return
    world = spawn('unshare', [...NAMESPACE, process.execPath, '-e', WORLD], { stdio: ['pipe', 'pipe', 'inherit'] })
    if (world.stdout === null) throw new Error('no stdout')
    answers = createInterface({ input: world.stdout })[Symbol.asyncIterator]()
    expect((await answers.next()).value).toBe('ready')
  })
  afterAll(() => {
    world?.kill('SIGKILL')
  })
  const ask = async (question: string): Promise<boolean> => {
    world?.stdin?.write(`${question}\n`)
    return (await answers?.next())?.value === 'true'
  }
  const command = (verb: string, port = DATABASE_PORT) => [
    ...['nsenter', '--net', '--target', String(world?.pid), '--', 'sh', packageFile('docs', 'fences', script), verb, String(port)],
  ]
  const create = (environment: Record<string, string> = {}) =>
    createExecFence(
      { name: 'region-a' } as RegionConfig,
      { kind: 'exec', name: 'firewall', apply: command('apply'), verify: command('verify'), lift: command('lift'), timeoutMs: 20_000 },
      createHooks({ PATH: process.env['PATH'] ?? '', ...environment }),
      createMemoryNotes(),
      () => Promise.resolve(),
      () => '2026-01-02T03:04:05.000Z',
    )

  wanted(
    'refuses new and open connections to the database, lets the allowed address and other ports through, and is lifted whole',
    async () => {
      const fence = create({ ALLOW: '127.0.0.7,::1'.replace(tool === 'iptables' ? ',::1' : '', '') })
      const seen = async () => [
        await ask('held'),
        await ask(`new ${DATABASE_PORT} 127.0.0.1`),
        await ask(`new ${DATABASE_PORT} 127.0.0.7`),
        await ask(`new ${OTHER_PORT} 127.0.0.1`),
      ]
      expect(await seen()).toEqual([true, true, true, true])
      expect((await fence.verify())[0]?.verdict).toBe('fail')
      await fence.apply(CAUSE)
      expect((await fence.verify())[0]?.verdict).toBe('pass')
      expect(await seen()).toEqual([false, false, true, true])
      // Repeated: nothing is doubled.
      await fence.apply(CAUSE)
      await liftStanding(fence, CAUSE)
      await liftStanding(fence, CAUSE)
      expect(await ask(`new ${DATABASE_PORT} 127.0.0.1`)).toBe(true)
      const left = spawnSync('nsenter', [
        '--net',
        '--target',
        String(world?.pid),
        '--',
        tool,
        ...(tool === 'nft' ? ['list', 'ruleset'] : ['-S']),
      ])
      expect(left.stdout.toString()).not.toMatch(/homeregion/i)
    },
  )

  wanted('is found open when somebody takes the rules away', async () => {
    const fence = create()
    await fence.apply(CAUSE)
    const away = tool === 'nft' ? ['delete', 'table', 'inet', 'homeregion_fence'] : ['-F', 'INPUT']
    expect(spawnSync('nsenter', ['--net', '--target', String(world?.pid), '--', tool, ...away]).status).toBe(0)
    expect((await fence.verify())[0]?.verdict).toBe('fail')
    await liftStanding(fence, CAUSE)
  })

  wanted('is unknown to somebody who may not look', async () => {
    const fence = createExecFence(
      { name: 'region-a' } as RegionConfig,
      {
        ...{ kind: 'exec' as const, name: 'firewall', timeoutMs: 20_000, apply: command('apply'), lift: command('lift') },
        verify: [
          'setpriv',
          '--reuid',
          '65534',
          '--clear-groups',
          'sh',
          packageFile('docs', 'fences', script),
          'verify',
          String(DATABASE_PORT),
        ],
      },
      createHooks({ PATH: process.env['PATH'] ?? '' }),
      createMemoryNotes(),
      () => Promise.resolve(),
      () => '2026-01-02T03:04:05.000Z',
    )
    expect((await fence.verify())[0]?.verdict).toBe('unknown')
  })

  wanted('takes nothing but ports and addresses', async () => {
    const error = await codedError(() => create({ ALLOW: '127.0.0.7 } accept; #' }).apply(CAUSE))
    expect(error.text.fact).toContain('ended with 64')
  })
})
