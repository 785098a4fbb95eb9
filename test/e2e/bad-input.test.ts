import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import type { CliResult } from '../rig/cli.ts'
import { atPort, configCopy, portOf, type WrittenConfig } from './config-copy.ts'
import { shippedText } from './runbooks.ts'
import { runIdOf, useScene } from './scene.ts'
import { startTcpLink } from './tcp-link.ts'

const scene = useScene(['bad-key', 'bad-stale', 'bad-many-1', 'bad-many-2', 'bad-many-3', 'bad-file-1', 'bad-file-2'])
const CLOSED_PORT = 1

describe.concurrent('a request that cannot be right is refused with the next command, and changes nothing', () => {
  it.each([
    ['a key that nobody registered', ['nobody-knows-it', '--to', 'region-b'], 3, /nobody-knows-it/, /homeregion key list/],
    ['a region that is not configured', ['KEY', '--to', 'region-c'], 64, /region-c.*region-a, region-b/, /homeregion config show/],
    [
      'the region where it is at home',
      ['KEY', '--to', 'region-a'],
      64,
      /at home in region-a already \(epoch 1, ACTIVE\)/,
      /homeregion status KEY/,
    ],
    ['no key at all', ['--to', 'region-b'], 64, /no key given/, /--keys-file/],
    ['a key given twice', ['KEY', 'KEY', '--to', 'region-b'], 64, /is given twice/, null],
    ['a plan of another time', ['KEY', '--to', 'region-b', '--plan', '0123456789ab'], 5, /plan 0123456789ab is stale/, /homeregion plan/],
    ['no confirmation and nobody to ask', ['KEY', '--to', 'region-b'], 64, /no terminal to ask at/, /--confirm KEY/],
    ['--yes, which answers no typed confirmation', ['KEY', '--to', 'region-b', '--yes'], 64, /no terminal to ask at/, /--confirm KEY/],
    ['the confirmation of another key', ['KEY', '--to', 'region-b', '--confirm', 'tenant-1'], 3, /confirm was not confirmed/, null],
    ['a runbook that is not there', ['KEY', '--to', 'region-b', '--runbook', './none.yaml'], 65, /none\.yaml/, null],
  ])('%s', async (_name, args, code, fact, next) => {
    const key = scene.key('bad-key')
    const run = await scene.rig.cli(['transfer', ...args.map(word => word.replace('KEY', key))], { timeoutMs: 120_000 })
    expect(run.code, run.stderr).toBe(code)
    refusedCleanly(run, fact, next === null ? null : new RegExp(next.source.replace('KEY', key)))
    await untouched(key)
  })

  it('a plan that was overtaken by another move', async () => {
    const key = scene.key('bad-stale')
    const plan = await scene.rig.cli(['plan', key, '--to', 'region-b', '-o', 'json'])
    expect(plan.code, plan.stderr).toBe(0)
    const { id } = JSON.parse(plan.stdout) as { id: string }
    for (const to of ['region-b', 'region-a'] as const) {
      const moved = await scene.transfer(key, to)
      expect(moved.code, moved.stdout + moved.stderr).toBe(0)
    }
    const late = await scene.transfer(key, 'region-b', ['--plan', id])
    expect(late.code, late.stderr).toBe(5)
    refusedCleanly(late, new RegExp(`plan ${id} is stale`), /homeregion plan/)
    await scene.writableOnlyAt(key, 'region-a', 3)
  })

  it('a malformed runbook, with position and caret, and one whose activation skips the evidence', async () => {
    const key = scene.key('bad-key')
    const cases: readonly (readonly [string, string, RegExp])[] = [
      [
        'unknown-check',
        shippedText().replace('- boundary-installed', '- boundary-instaled'),
        /:12:9: .*boundary-instaled.*\n[^]*\^\n[^]*did you mean "boundary-installed"/,
      ],
      ['no-fence', shippedText().replace('gate: [ fence-holds ]', 'gate: [ writes-in-flight ]'), /fence-holds[^]*\^/],
      ['not-yaml', 'steps: [', /:1:9: not valid YAML[^]*\^/],
    ]
    for (const [name, text, expected] of cases) {
      const file = join(scene.dir, `${name}.yaml`)
      writeFileSync(file, text)
      const run = await scene.transfer(key, 'region-b', ['--runbook', file])
      expect(run.code, run.stderr).toBe(65)
      expect(run.stderr).toContain(`${name}.yaml`)
      refusedCleanly(run, expected, null)
    }
    await untouched(key)
  })
})

describe('what is out of reach is named within ten seconds', () => {
  const cases: readonly (readonly [string, (config: WrittenConfig) => void, RegExp, number])[] = [
    ['control plane', c => Object.assign(c.controlPlane, atPort(c.controlPlane, CLOSED_PORT)), /control plane/, 69],
    [
      'region-b database',
      c => Object.assign(c.regions['region-b'].database.operator, atPort(c.regions['region-b'].database.operator, CLOSED_PORT)),
      /region-b database/,
      3,
    ],
    ['region-b Kafka', c => void c.regions['region-b'].kafka.brokers.splice(0, 1, `127.0.0.1:${CLOSED_PORT}`), /region-b Kafka/, 3],
  ]
  it.each(cases)('%s, by doctor and by plan', async (_name, change, named, code) => {
    const config = configCopy(scene, change)
    const began = performance.now()
    const doctor = await scene.rig.cli(['doctor', '--config', config])
    const tookMs = performance.now() - began
    expect(doctor.code, doctor.stdout + doctor.stderr).toBe(3)
    expect(doctor.stdout).toMatch(new RegExp(`^\\?\\? ${named.source}: answers: `, 'm'))
    const plan = await scene.rig.cli(['plan', scene.key('bad-key'), '--to', 'region-b', '--config', config])
    expect(plan.code, plan.stdout + plan.stderr).toBe(code === 69 ? 69 : 0)
    expect(plan.stdout + plan.stderr).toMatch(named)
    expect(tookMs).toBeLessThan(10_000)
    await untouched(scene.key('bad-key'))
  })

  it('and refuses the move before the drain', async () => {
    const key = scene.key('bad-key')
    const config = configCopy(scene, c =>
      Object.assign(c.regions['region-b'].database.operator, atPort(c.regions['region-b'].database.operator, CLOSED_PORT)),
    )
    const began = performance.now()
    const end = await scene.transfer(key, 'region-b', ['--config', config])
    expect(performance.now() - began).toBeLessThan(10_000)
    expect(end.code, end.stderr).toBe(3)
    refusedCleanly(end, /regions-reachable: fail: region-b database/, /homeregion doctor/)
    await untouched(key)
  })

  it("another region's database behind the name of a region is refused before the drain", async () => {
    const key = scene.key('bad-key')
    const same = configCopy(scene, c => {
      c.regions['region-b'].database = structuredClone(c.regions['region-a'].database)
    })
    const twice = await scene.transfer(key, 'region-b', ['--config', same])
    expect(twice.code, twice.stdout + twice.stderr).toBe(78)
    refusedCleanly(twice, /regions\.region-b\.database\.operator\.url: is the database of region-a as well/, null)
    // Under another address only the boundary itself can tell.
    let port = 0
    configCopy(scene, c => {
      port = portOf(c.regions['region-a'].database.operator)
    })
    const link = await startTcpLink(port)
    const config = configCopy(scene, c => {
      const { operator, writers } = structuredClone(c.regions['region-a'].database)
      c.regions['region-b'].database = { operator: atPort(operator, link.port), writers: writers.map(w => atPort(w, link.port)) }
    })
    const run = await scene.transfer(key, 'region-b', ['--config', config])
    await link.stop()
    expect(run.code, run.stdout + run.stderr).toBe(3)
    refusedCleanly(run, /region-b: this database's boundary belongs to region-a/, /homeregion doctor/)
    await untouched(key)
  })

  it('a login without the privileges of the operator is refused before the drain, and says what is missing', async () => {
    const key = scene.key('bad-key')
    const config = configCopy(scene, c => {
      const [writer] = c.regions['region-b'].database.writers
      if (writer !== undefined) c.regions['region-b'].database.operator = { ...writer }
    })
    const run = await scene.transfer(key, 'region-b', ['--config', config])
    expect(run.code, run.stdout + run.stderr).toBe(3)
    refusedCleanly(
      run,
      /region-b: the operator's login cannot see the boundary, it lacks SELECT on homeregion\.installed/,
      /homeregion doctor/,
    )
    await untouched(key)
  })
})

describe.concurrent('keys of a file', () => {
  it('are judged in one report with line numbers before anything moves', async () => {
    const [good, moved] = [scene.key('bad-file-1'), scene.key('bad-file-2')]
    const there = await scene.transfer(moved, 'region-b')
    expect(there.code, there.stdout + there.stderr).toBe(0)
    const file = join(scene.dir, 'keys.txt')
    writeFileSync(file, `\ufeff# keys of May\r\n${good}\r\nnobody-knows-it\r\nregion-a\r\n${good}\r\n${moved}\r\n-x\r\na\u202eb\r\n`)
    const run = await scene.rig.cli(['transfer', '--keys-file', file, '--to', 'region-b', '--confirm-count', '1'])
    expect(run.code, run.stderr).toBe(65)
    for (const [line, why] of [
      [3, 'is not registered'],
      [4, 'is the name of a region'],
      [5, 'stands on line 2 already'],
      [6, 'is at home in region-b already'],
      [7, 'cannot begin with "-"'],
      [8, 'control, zero-width or bidirectional'],
    ] as const)
      expect(run.stderr).toMatch(new RegExp(`:${line}:1.*${why}`))
    expect(run.stderr).not.toMatch(/:2:1/)
    await scene.writableOnlyAt(good, 'region-a', 1)
    writeFileSync(file, `\ufeff# keys of May\r\n${good}\r\n`)
    const mended = await scene.rig.cli(['transfer', '--keys-file', file, '--to', 'region-b', '--confirm', good, '--observe', '0s'])
    expect(mended.code, mended.stdout + mended.stderr).toBe(0)
    await scene.writableOnlyAt(good, 'region-b', 2)
  })

  it('beyond the limit need their number, which the refusal shows with a sample and the plan', async () => {
    const keys = ['bad-many-1', 'bad-many-2', 'bad-many-3'].map(name => scene.key(name))
    const config = configCopy(scene, c => {
      c.policy['maxKeys'] = 2
    })
    const args = ['transfer', ...keys, '--to', 'region-b', '--observe', '0s', '--config', config]
    for (const confirm of [[], ['--confirm-count', '2'], ['--yes']]) {
      const refused = await scene.rig.cli([...args, ...confirm])
      expect(refused.code, refused.stderr).toBe(4)
      refusedCleanly(
        refused,
        new RegExp(`moves 3 keys; policy\\.maxKeys is 2\\. First of them: ${keys.join(', ')} \\(plan [0-9a-f]{12}\\)`),
        /--confirm-count 3/,
      )
    }
    const moved = await scene.rig.cli([...args, '--confirm-count', '3'], { timeoutMs: 120_000 })
    expect(moved.code, moved.stdout + moved.stderr).toBe(0)
    // One after the other, the first as the canary.
    expect([...moved.stderr.matchAll(/^(\S+) {2}\((\d) of 3\)$/gm)].map(m => m[1])).toEqual(keys)
    expect(runIdOf(moved.stdout)).toBeTruthy()
    for (const key of keys) await scene.writableOnlyAt(key, 'region-b', 2)
  })
})

/** Three lines: fact, state, next command; no stack, no escape. */
function refusedCleanly(run: CliResult, fact: RegExp, next: RegExp | null): void {
  expect(run.stderr).toMatch(/^error: /m)
  expect(run.stderr).toMatch(fact)
  expect(run.stderr).toMatch(/^state: (Nothing was (changed|moved|read)|No run was opened)/m)
  if (next !== null) expect(run.stderr).toMatch(new RegExp(`^next: {2}.*${next.source}`, 'm'))
  expect(run.stderr).not.toMatch(/\n\s+at |unexpected:/)
}

async function untouched(key: string): Promise<void> {
  expect(await scene.ownership(key)).toEqual({
    record: 'ACTIVE region-a epoch 1',
    boundaries: { 'region-a': 'ACTIVE region-a epoch 1 writable', 'region-b': 'ACTIVE region-a epoch 1' },
  })
}
