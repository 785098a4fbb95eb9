// Runs a few harmless commands in the bundled program and keeps the code V8 compiled for them beside it; prints the file's name.
// Usage: node scripts/compile.mjs dist/program-<hash>.cjs
import { mkdtempSync, renameSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { Writable } from 'node:stream'
import { tsImport } from 'tsx/esm/api'

const [file] = process.argv.slice(2)
const { compile, compiledFile, evaluate } = await tsImport('../src/cli/compiled-program.ts', import.meta.url)

// Nobody listens on port 1: what is warmed is everything up to the first answer of a server.
const url = user => `postgres://${user}@127.0.0.1:1/none`
const region = name => `  ${name}:
    database: { operator: { url: "${url(name)}" }, writers: [{ url: "${url('writer')}" }] }
    kafka: { brokers: ["127.0.0.1:1"], outboxTopic: o, inboxGroup: i }`
const config = `service: warm-up
topology: shared
controlPlane: { url: "${url('operator')}", password: { env: WARM_UP } }
regions:
${region('region-a')}
${region('region-b')}
tables:
  - { table: public.account, key: tenant_id, version: { aggregate: account_id, column: version } }
outbox: { table: outbox, key: tenant_id }
inbox: { table: inbox, key: tenant_id }
policy: { callTimeout: 500ms }
`
const commands = [['help'], ['states'], ['config', 'show'], ['runbook', 'list'], ['key', 'list'], ['status'], ['status', '-o', 'json']]

const folder = mkdtempSync(join(tmpdir(), 'homeregion-compile-'))
try {
  writeFileSync(join(folder, 'homeregion.yaml'), config)
  const { script } = compile(file)
  const { run } = evaluate(script, file)
  const sink = () => new Writable({ write: (_chunk, _encoding, done) => done() })
  for (const argv of commands) await run(argv, { stdout: sink(), stderr: sink(), env: { WARM_UP: 'none' }, cwd: folder })
  const cache = compiledFile(file)
  writeFileSync(`${cache}.${process.pid}`, script.createCachedData())
  renameSync(`${cache}.${process.pid}`, cache)
  process.stdout.write(`${cache}\n`)
} finally {
  rmSync(folder, { recursive: true, force: true })
}
