import { chmodSync, chownSync, mkdirSync, readdirSync, readFileSync, statSync, symlinkSync } from 'node:fs'
import { createServer, type Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import { delimiter, join } from 'node:path'
import { describe, expect, onTestFinished, test } from 'vitest'
import { createSink } from '../../src/adapters/sinks/sink.ts'
import type { SinkContext } from '../../src/adapters/sinks/sink-context.ts'
import { createSecrets } from '../../src/adapters/system/secrets.ts'
import type { SecretSink } from '../../src/domain/config.ts'
import { codedError } from './coded-error.ts'
import { temporaryFolder } from './temporary-folder.ts'

const SECRET = 'kept-secret-canary-value'
const TOKEN = 'vault-token-canary'
const about = { region: 'region-a', role: 'app_writer' }
const env = { PATH: process.env['PATH'], TOKEN }
const context: SinkContext = { secrets: createSecrets(env), env, timeoutMs: 3_000 }

const refusal = async (sink: SecretSink, with_: SinkContext = context) => {
  const error = await codedError(async () => await createSink(sink, with_).deliver(SECRET, about))
  expect(error.code).toBe('fence-failed')
  const all = [error.text, error.fields, String(error.cause), error.stack].map(part => JSON.stringify(part)).join()
  expect(all).not.toContain(SECRET)
  expect(all).not.toContain(Buffer.from(SECRET).toString('base64'))
  expect(all).not.toContain(TOKEN)
  return error.text.fact
}

describe('a file as sink', () => {
  test('holds the secret and nothing else, for its owner only', async () => {
    const folder = temporaryFolder()
    const path = join(folder, 'secret')
    const sink = createSink({ file: path }, context)
    expect(await sink.read()).toBe(null)
    await sink.deliver(SECRET, about)
    expect(readFileSync(path, 'utf8')).toBe(SECRET)
    expect(statSync(path).mode & 0o777).toBe(0o600)
    expect(await sink.read()).toBe(SECRET)
    expect(readdirSync(folder)).toEqual(['secret'])
  })

  test('is replaced, not written over: whoever reads the old one reads it whole', async () => {
    const folder = temporaryFolder({ secret: 'old' })
    const path = join(folder, 'secret')
    chmodSync(path, 0o644)
    const before = statSync(path).ino
    await createSink({ file: path }, context).deliver(SECRET, about)
    expect(statSync(path).ino).not.toBe(before)
  })

  test.each([
    [0o640, 0o640],
    [0o644, 0o640],
    [0o400, 0o400],
    [0o666, 0o660],
  ])('of mode %o is replaced by one of mode %o: its group reads on, the world does not', async (was, is) => {
    const folder = temporaryFolder({ secret: 'old' })
    chmodSync(join(folder, 'secret'), was)
    await createSink({ file: join(folder, 'secret') }, context).deliver(SECRET, about)
    expect(statSync(join(folder, 'secret')).mode & 0o7777).toBe(is)
  })

  test.runIf(process.getuid?.() === 0)('keeps the owner it had', async () => {
    const folder = temporaryFolder({ secret: 'old' })
    const path = join(folder, 'secret')
    chownSync(path, 12_345, 12_346)
    await createSink({ file: path }, context).deliver(SECRET, about)
    expect(statSync(path)).toMatchObject({ uid: 12_345, gid: 12_346 })
  })

  test('behind a link is replaced where it stands, and the link stays', async () => {
    const folder = temporaryFolder({ 'real/secret': 'old' })
    symlinkSync('real/secret', join(folder, 'link'))
    await createSink({ file: join(folder, 'link') }, context).deliver(SECRET, about)
    expect(readFileSync(join(folder, 'real/secret'), 'utf8')).toBe(SECRET)
    expect(readdirSync(join(folder, 'real'))).toEqual(['secret'])
  })

  test.each([
    ['a directory', 'folder', 'it is a directory'],
    ['links in a circle', 'a', 'its links lead in a circle (ELOOP)'],
    ['a link to nothing', 'dangling', 'it is a link to nothing'],
    ['a folder that is not there', 'no/such/secret', 'its folder does not exist (ENOENT)'],
    ['a file as a folder', 'file/secret', 'a part of its folder is not a directory (ENOTDIR)'],
  ])('%s is refused, and nothing is left behind', async (_case, path, why) => {
    const folder = temporaryFolder({ file: 'x' })
    mkdirSync(join(folder, 'folder'))
    symlinkSync('b', join(folder, 'a'))
    symlinkSync('a', join(folder, 'b'))
    symlinkSync('nowhere', join(folder, 'dangling'))
    expect(await refusal({ file: join(folder, path) })).toBe(`file ${join(folder, path)}: ${why}`)
    expect(readdirSync(folder).sort()).toEqual(['a', 'b', 'dangling', 'file', 'folder'])
  })

  test('a device is refused', async () => {
    expect(await refusal({ file: '/dev/null' })).toContain('not a regular file')
  })
})

describe('a command as sink', () => {
  test('reads the secret from its stdin and learns whose it is', async () => {
    const folder = temporaryFolder()
    const seen = join(folder, 'seen')
    const script = `{ printf '%s %s ' "$HOMEREGION_REGION" "$HOMEREGION_ROLE"; cat; } > '${seen}'; tr '\\0' ' ' < /proc/$$/environ > '${seen}.env'`
    const sink = createSink({ command: ['sh', '-c', script] }, context)
    await sink.deliver(SECRET, about)
    expect(readFileSync(seen, 'utf8')).toBe(`region-a app_writer ${SECRET}`)
    expect(readFileSync(`${seen}.env`, 'utf8')).not.toContain(SECRET)
    expect(await sink.read()).toBe(null)
  })

  test.each([
    ['fails', ['sh', '-c', 'cat; cat >&2; exit 7'], 'command sh: it ended with 7'],
    ['is not there', ['homeregion-no-such-program', 'argument'], 'command homeregion-no-such-program: the program was not found'],
    ['prints without end', ['sh', '-c', 'read s; exec yes "$s"'], 'printed more than'],
    ['ends by a signal', ['sh', '-c', 'kill -9 $$'], 'ended by a signal'],
  ])('that %s is an error without its arguments and output', async (_case, command, why) => {
    expect(await refusal({ command })).toContain(why)
  })

  test('that hangs is ended with everything it started', async () => {
    const folder = temporaryFolder()
    const pidFile = join(folder, 'pid')
    const fact = await refusal({ command: ['sh', '-c', `sleep 60 & echo $! > '${pidFile}'; wait`] }, { ...context, timeoutMs: 500 })
    expect(fact).toContain('did not end within 500 ms')
    await expect.poll(() => isAlive(Number(readFileSync(pidFile, 'utf8')))).toBe(false)
  })

  test('that leaves something running behind it is not waited for', async () => {
    await createSink({ command: ['sh', '-c', 'cat > /dev/null; sleep 60 & exit 0'] }, context).deliver(SECRET, about)
  })
})

describe('a Kubernetes secret as sink', () => {
  // Keeps its argv and the manifest, and answers `get` with what was applied.
  const FAKE = `#!/bin/sh
dir=$(dirname "$0")
echo "$@" >> "$dir/argv"
case "$*" in
  *"fail"*) echo "Error from server (Forbidden): $(cat)" >&2; exit 1 ;;
  *apply*) cat > "$dir/manifest" ;;
  *get*) cat "$dir/manifest" 2> /dev/null || true ;;
esac
`
  const setUp = () => {
    const folder = temporaryFolder({ kubectl: FAKE })
    chmodSync(join(folder, 'kubectl'), 0o755)
    return { folder, context: { ...context, env: { ...env, PATH: `${folder}${delimiter}${env.PATH ?? ''}` } } }
  }
  const secretOf = (namespace: string) => ({
    kubernetes: { namespace, secret: 'app-db', key: 'password', context: 'prod-a' },
  })

  test('is applied on the server as one field, from stdin', async () => {
    const { folder, context } = setUp()
    const sink = createSink(secretOf('shop'), context)
    expect(await sink.read()).toBe(null)
    await sink.deliver(SECRET, about)
    const data = Buffer.from(SECRET).toString('base64')
    expect(JSON.parse(readFileSync(join(folder, 'manifest'), 'utf8'))).toEqual({
      apiVersion: 'v1',
      kind: 'Secret',
      metadata: { name: 'app-db', namespace: 'shop' },
      data: { password: data },
    })
    expect(await sink.read()).toBe(SECRET)
    const argv = readFileSync(join(folder, 'argv'), 'utf8')
    expect(argv).toContain('--context=prod-a --namespace=shop apply --server-side --force-conflicts --field-manager=homeregion -f -')
    expect(argv).not.toContain(SECRET)
    expect(argv).not.toContain(data)
  })

  test('that is refused says why, without the manifest that kubectl quotes', async () => {
    const { context } = setUp()
    expect(await refusal(secretOf('fail'), context)).toContain('kubectl ended with 1: Error from server (Forbidden)')
  })
})

describe('a Vault secret as sink', () => {
  test('is written by one version after the one read, and the other keys stay', async () => {
    const vault = await startVault({ version: 4, data: { user: 'app', password: 'old' } })
    const sink = createSink(vault.sink, context)
    expect(await sink.read()).toBe('old')
    await sink.deliver(SECRET, about)
    expect(vault.stored()).toEqual({ version: 5, data: { user: 'app', password: SECRET } })
    expect(await sink.read()).toBe(SECRET)
  })

  test('is made when it is not there', async () => {
    const vault = await startVault(null)
    await createSink(vault.sink, context).deliver(SECRET, about)
    expect(vault.stored()).toEqual({ version: 1, data: { password: SECRET } })
  })

  test('whose newest version was deleted is written after it', async () => {
    const vault = await startVault({ version: 3, data: null })
    await createSink(vault.sink, context).deliver(SECRET, about)
    expect(vault.stored()).toEqual({ version: 4, data: { password: SECRET } })
  })

  test('that somebody else writes in between keeps what they wrote', async () => {
    const vault = await startVault({ version: 1, data: { password: 'old' } })
    vault.beforeNextWrite({ version: 2, data: { password: 'old', other: 'theirs' } })
    await createSink(vault.sink, context).deliver(SECRET, about)
    expect(vault.stored()).toEqual({ version: 3, data: { password: SECRET, other: 'theirs' } })
  })

  test.each([
    ['forbids', 403, 'was answered with 403: its token may not'],
    ['is sealed', 503, 'was answered with 503: it is sealed or on standby'],
    ['sends elsewhere', 307, 'no answer'],
  ])('that %s is an error without token and secret', async (_case, status, why) => {
    const vault = await startVault(null, status)
    expect(await refusal(vault.sink)).toContain(why)
  })

  const ENDS = "not as Vault's key/value store of version 2 answers"
  test.each([
    ['a page that greets everybody', 'GET', 200, '<html>welcome</html>'],
    ['an empty object', 'GET', 200, '{}'],
    ['a store of version 1', 'GET', 200, '{"data":{"password":"old"}}'],
    ['a secret without a version', 'GET', 200, '{"data":{"data":{},"metadata":{}}}'],
    ['a not-found page of something else', 'GET', 404, '<html>no such page</html>'],
    ['a write without its version', 'POST', 200, '{"data":{}}'],
    ['a write taken without a word', 'POST', 204, ''],
  ])('that is %s is no Vault, and nothing counts as delivered', async (_case, method, status, body) => {
    const vault = await startVault({ version: 1, data: { password: 'old' } }, { method, status, body })
    expect(await refusal(vault.sink)).toContain(ENDS)
    if (method === 'GET') expect((await codedError(async () => await createSink(vault.sink, context).read())).text.fact).toContain(ENDS)
    expect(vault.stored()).toEqual({ version: 1, data: { password: 'old' } })
  })

  test('that does not answer is given up', async () => {
    const vault = await startVault(null, 'silent')
    expect(await refusal(vault.sink, { ...context, timeoutMs: 300 })).toContain('no answer within 300 ms')
  })

  test('whose token cannot be one is an error without it', async () => {
    const vault = await startVault(null)
    const broken = { ...context, secrets: createSecrets({ TOKEN: `${TOKEN}\nx` }) }
    expect(await refusal(vault.sink, broken)).toContain('its token has characters')
  })
})

type Stored = { readonly version: number; readonly data: Readonly<Record<string, string>> | null }

/** Answers as the key/value store does, version 2: versions, check-and-set, deleted versions. */
type Fault = number | 'silent' | { readonly method: string; readonly status: number; readonly body: string }

async function startVault(first: Stored | null, fault?: Fault) {
  let stored = first
  let foreign: Stored | null = null
  const server: Server = createServer((request, response) => {
    const answer = (status: number, body: unknown) =>
      void response.writeHead(status, { 'content-type': 'application/json', location: 'http://127.0.0.1:1/' }).end(JSON.stringify(body))
    let text = ''
    request.on('data', (chunk: Buffer) => (text += chunk.toString('utf8')))
    request.on('end', () => {
      if (fault === 'silent') return
      if (typeof fault === 'number') return answer(fault, { errors: [] })
      if (fault?.method === request.method) return void response.writeHead(fault?.status ?? 500).end(fault?.body)
      if (request.headers['x-vault-token'] !== TOKEN) return answer(403, { errors: ['permission denied'] })
      if (request.url !== '/v1/kv%20two/data/team/app') return answer(404, { errors: [] })
      if (request.method === 'GET') {
        if (stored === null) return answer(404, { errors: [] })
        return answer(stored.data === null ? 404 : 200, { data: { data: stored.data, metadata: { version: stored.version } } })
      }
      stored = foreign ?? stored
      foreign = null
      const { options, data } = JSON.parse(text) as { options: { cas: number }; data: Record<string, string> }
      if (options.cas !== (stored?.version ?? 0))
        return answer(400, { errors: ['check-and-set parameter did not match the current version'] })
      stored = { version: options.cas + 1, data }
      return answer(200, { data: { version: stored.version } })
    })
  })
  await new Promise<void>(resolve => server.listen(0, '127.0.0.1', resolve))
  onTestFinished(() => {
    server.closeAllConnections()
    server.close()
  })
  const address = `http://127.0.0.1:${(server.address() as AddressInfo).port}/`
  const sink: SecretSink = { vault: { address, mount: 'kv two', path: 'team/app', key: 'password', token: { env: 'TOKEN' } } }
  return { sink, stored: () => stored, beforeNextWrite: (by: Stored) => (foreign = by) }
}

function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0)
    return !readFileSync(`/proc/${pid}/stat`, 'utf8').includes(') Z ')
  } catch {
    return false
  }
}
