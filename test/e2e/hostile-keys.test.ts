import { existsSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { beforeAll, describe, expect, it } from 'vitest'
import { stepBefore } from './runbooks.ts'
import { useScene } from './scene.ts'

const scene = useScene([])
// Everything that SQL, a shell, a template or a chat would act on, and which a key may hold all the same.
const HOSTILE = `it's; drop table public.account; --"$(touch PWNED) \`touch PWNED\` <!channel> @here \`\`\` %s \${x} ключ \\n ${Date.now()}`
const BLUNT = `a"b'c\\d<@U1>&amp;|tee ${Date.now()}`

describe('a key with characters that something would interpret', () => {
  beforeAll(async () => {
    const added = await scene.rig.cli(['key', 'add', HOSTILE, BLUNT, '--home', 'region-a'])
    expect(added.code, added.stderr).toBe(0)
  })

  it('comes out as it went in, in JSON', async () => {
    const verbs = await Promise.all(
      [
        ['key', 'show', HOSTILE],
        ['status', HOSTILE],
        ['plan', HOSTILE, '--to', 'region-b'],
      ].map(async args => await scene.rig.cli([...args, '-o', 'json'], { timeoutMs: 120_000 })),
    )
    const [show, status, plan] = verbs.map(v => {
      expect(v.code, v.stderr).toBe(0)
      return JSON.parse(v.stdout) as Record<string, unknown>
    })
    expect(show).toMatchObject({ key: HOSTILE })
    expect(status).toMatchObject({ keys: [{ key: HOSTILE }] })
    expect(JSON.stringify(plan)).toContain(JSON.stringify(HOSTILE))
  })

  it('is quoted for terminals, and does nothing in a channel', async () => {
    const [text, list, paste] = await Promise.all(
      [
        ['status', HOSTILE, BLUNT],
        ['key', 'list', '--limit', '1000'],
        ['status', HOSTILE, BLUNT, '-o', 'paste'],
      ].map(async args => await scene.rig.cli(args, { timeoutMs: 120_000 })),
    )
    for (const run of [text, list, paste]) {
      expect(run?.code, run?.stderr).toBe(0)
      expect((run?.stdout ?? '') + (run?.stderr ?? '')).not.toMatch(/[^\P{Cc}\n]|[\p{Cf}\p{Zl}\p{Zp}]/u)
    }
    const pasted = paste?.stdout.trimEnd() ?? ''
    expect(pasted).toMatch(/^[\x20-\x7e\n]*$/)
    expect(pasted.split('```')).toHaveLength(3)
    expect(pasted.startsWith('```') && pasted.endsWith('```')).toBe(true)
    expect(pasted).not.toMatch(/<[!@#]|@(here|channel|everyone)\b/)
    expect(Math.max(...pasted.split('\n').map(l => l.length))).toBeLessThanOrEqual(72)
    expect(pasted.length).toBeLessThanOrEqual(2800)
  })

  it('leaves the colours of the tool itself alone', async () => {
    const coloured = await scene.rig.cli(['doctor', '--color', 'always'], { timeoutMs: 120_000 })
    expect(coloured.stdout).toMatch(/^\u001b\[32mok\u001b\[39m control plane: answers/m)
    expect(coloured.stdout).not.toContain('u{1b}')
  })

  it('moves, reaches a hook as one value, and is executed by nobody', async () => {
    const written = join(scene.dir, 'hook.json')
    const hook = `  - id: hook\n    title: A hook\n    action: { exec: { command: [${JSON.stringify(process.execPath)}, "-e", "require('fs').writeFileSync(process.argv[1], JSON.stringify(process.env.HOMEREGION_KEY))", ${JSON.stringify(written)}], timeout: 30s } }`
    await scene.write(HOSTILE, 'region-a')
    const moved = await scene.transfer(HOSTILE, 'region-b', ['--runbook', scene.runbook([stepBefore('catch-up', hook)])], {
      cwd: scene.dir,
    })
    expect(moved.code, moved.stdout + moved.stderr).toBe(0)
    expect(JSON.parse(readFileSync(written, 'utf8'))).toBe(HOSTILE)
    expect(existsSync(join(scene.dir, 'PWNED'))).toBe(false)
    await scene.writableOnlyAt(HOSTILE, 'region-b', 2)
    const runs = await scene.rig.cli(['run', 'list', '--key', HOSTILE, '-o', 'json'])
    expect(runs.code, runs.stderr).toBe(0)
    expect(JSON.parse(runs.stdout)).toMatchObject([{ moves: [{ key: HOSTILE, outcome: 'moved' }] }])
  })

  it.each([
    ['a line feed', 'a\nb', ['key', 'add', 'KEY', '--home', 'region-a']],
    ['an escape sequence', '\u001b[2Jred', ['status', 'KEY']],
    ['right-to-left controls', 'gpj.\u202eexe', ['transfer', 'KEY', '--to', 'region-b']],
    ['300 characters', 'x'.repeat(300), ['plan', 'KEY', '--to', 'region-b']],
    ['white space at its end', 'tenant-1 ', ['key', 'show', 'KEY']],
    ['the form of an option', '--to', ['key', 'show', '--', 'KEY']],
  ])('is refused with %s, and the refusal shows it harmless', async (_what, key, args) => {
    for (const format of [[], ['-o', 'json']]) {
      const run = await scene.rig.cli([...format, ...args.map(word => (word === 'KEY' ? key : word))])
      expect(run.code, run.stderr).toBe(64)
      expect(run.stderr).toMatch(/is not a valid key: /)
      expect(run.stderr).toMatch(/Nothing was changed/)
      expect(run.stderr).not.toMatch(/[^\P{Cc}\n]|[\p{Cf}\p{Zl}\p{Zp}]/u)
      if (format.length > 0) expect(JSON.parse(run.stderr)).toMatchObject({ error: { code: 'invalid-key', exit: 64 } })
    }
  })
})
