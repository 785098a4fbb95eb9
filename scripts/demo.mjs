// `npm run demo`: two regions on this machine, a service that writes, and tenant-42 moved from region-a to region-b by the real command
// line. Plain Node, because on a fresh clone nothing is installed yet.
import { spawn, spawnSync } from 'node:child_process'
import { existsSync, readFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as wait } from 'node:timers/promises'
import { ensureInstalled, root, runOrExit } from './install.mjs'

const KEY = 'tenant-42'
const SOURCE = 'region-a'
const TARGET = 'region-b'
// A service in daylight, not a benchmark: as fast as it goes would leave a small machine no time to replicate.
const RATE_PER_SECOND = 100

const dir = join(tmpdir(), `homeregion-demo-${process.getuid?.() ?? 'user'}`)
const env = { ...process.env, HOMEREGION_SANDBOX: dir, HOMEREGION_CONFIG: join(dir, 'homeregion.yaml') }
const bin = join(root, 'bin', 'homeregion.js')
const problems = []
let load = null
const began = performance.now()

ensureInstalled()
runOrExit(process.execPath, ['scripts/build.mjs'])
let interrupted = false
for (const signal of ['SIGINT', 'SIGTERM'])
  process.on(signal, () => {
    interrupted = true
  })
try {
  await demo()
} catch (error) {
  problems.push(error instanceof Error ? error.message : String(error))
} finally {
  // Whatever happened, nothing of the demo stays behind; the logs of a failed one do.
  load?.kill()
  title('Down')
  if (problems.length === 0) homeregion('sandbox', 'down')
  else homeregion('sandbox', 'down', '--keep')
}
console.log(`\n${problems.length === 0 ? 'The demo held' : `The demo FAILED: ${problems.join('; ')}`} (${seconds()} s)`)
process.exitCode = problems.length === 0 ? 0 : 1

async function demo() {
  title('Two regions and a control plane')
  // A demo that was killed may have left a sandbox in which the key has moved already.
  spawnSync(process.execPath, [bin, 'sandbox', 'down'], { env, stdio: 'ignore' })
  must(homeregion('sandbox', 'up'), 'the sandbox did not start')

  title(`Load on: both services take writes for ${KEY}`)
  load = startLoad()
  await until(() => acknowledged() >= 200, 'the services acknowledged no writes')
  console.log(`${acknowledged()} writes acknowledged so far`)

  title(`Move ${KEY} from ${SOURCE} to ${TARGET}`)
  console.log(`$ homeregion transfer ${KEY} --to ${TARGET} --confirm ${KEY} --observe 2s`)
  must(homeregion('transfer', KEY, '--to', TARGET, '--confirm', KEY, '--observe', '2s'), 'the transfer did not succeed')

  title('What the writers saw')
  const before = acknowledged()
  await until(() => acknowledged() >= before + 50, 'no writes were acknowledged after the move')
  report(await load.stop())

  title('A write of the old epoch, and one past the service')
  await staleWrite()
  await directWrite()

  title('Status')
  console.log('$ homeregion status')
  must(homeregion('status'), 'status failed')
}

function homeregion(...args) {
  if (interrupted && args[1] !== 'down') throw new Error('interrupted')
  return spawnSync(process.execPath, [bin, ...args], { cwd: root, env, stdio: ['ignore', 'inherit', 'inherit'] }).status
}

/** The load generator as a process of its own: its clock is the only one that times are taken from. */
function startLoad() {
  const args = [bin, 'sandbox', 'load', '--tenant', KEY, '--rate', String(RATE_PER_SECOND), '--file', acksFile(), '-o', 'json']
  // Detached: Ctrl-C is passed on by the demo, when it wants the report.
  const child = spawn(process.execPath, args, { cwd: root, env, stdio: ['ignore', 'pipe', 'inherit'], detached: true })
  let text = ''
  child.stdout.setEncoding('utf8').on('data', chunk => {
    text += chunk
  })
  const ended = new Promise(resolve => child.once('close', resolve))
  return {
    kill: () => child.kill('SIGKILL'),
    async stop() {
      child.kill('SIGINT')
      await Promise.race([ended, wait(60_000, undefined, { ref: false })])
      if (child.exitCode === null) child.kill('SIGKILL')
      if (text === '') throw new Error('the load gave no report')
      return JSON.parse(text)
    },
  }
}

function report(result) {
  const { acknowledged: all, lost, doubled, versionGaps, overlaps, writeStops, refused } = result
  console.log(`acknowledged writes          ${all}`)
  console.log(`  of them lost               ${lost.length}`)
  console.log(`  of them doubled            ${doubled.length}`)
  console.log(`  versions missing           ${versionGaps.length}`)
  console.log(`  accepted by two regions    ${overlaps.length}`)
  console.log(`refused and tried again      ${refused}`)
  // Silence is not evidence: a report without writes would show no loss either.
  if (all === 0) problems.push('no acknowledged write was checked')
  for (const stop of writeStops) console.log(`write stop                   ${stop.stopMs.toFixed(1)} ms (${stop.from} -> ${stop.to})`)
  if (writeStops.length !== 1) problems.push(`${writeStops.length} write stops where 1 was due`)
  const found = [...lost, ...doubled, ...versionGaps, ...overlaps, ...result.epochJumps]
  for (const line of found.slice(0, 10)) console.log(`  ${line}`)
  if (found.length > 0) problems.push(`${found.length} violations`)
}

/** A request that was on its way since before the move presents epoch 1 to the region that is home now. */
async function staleWrite() {
  const order = { tenant: KEY, accountId: 'account-1', idempotencyKey: 'from-before-the-move', epoch: 1, address: 'old street 1' }
  const { port } = JSON.parse(readFileSync(join(dir, TARGET, 'service', 'service.json'), 'utf8')).http
  const response = await fetch(`http://127.0.0.1:${port}/write`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify(order),
    signal: AbortSignal.timeout(10_000),
  })
  const answer = await response.json()
  console.log(`${TARGET}, presenting epoch 1: ${answer.error ?? 'ADMITTED'}, SQLSTATE ${answer.sqlstate}, current epoch ${answer.epoch}`)
  if (response.status !== 409 || answer.sqlstate !== 'HR002') problems.push('the write of the old epoch was not refused as stale')
}

/** No service between: the source's own database, with the real login of its service. */
async function directWrite() {
  const { default: pg } = await import('pg')
  const client = new pg.Client({
    host: '127.0.0.1',
    port: Number(readFileSync(join(dir, SOURCE, 'postgres', 'port'), 'utf8')),
    database: 'app',
    user: 'app_writer',
    password: readFileSync(join(dir, 'secrets', `${SOURCE}.app_writer`), 'utf8'),
    connectionTimeoutMillis: 5000,
  })
  await client.connect()
  const refused = await client.query('update public.account set billing_address = $1 where tenant_id = $2', ['old street 1', KEY]).then(
    () => null,
    error => error,
  )
  await client.end()
  console.log(
    `${SOURCE}, as app_writer, straight into its database: ${refused === null ? 'ADMITTED' : `${refused.message}, SQLSTATE ${refused.code}`}`,
  )
  if (refused?.code !== 'HR001') problems.push('the source still takes writes')
}

function acksFile() {
  return join(dir, 'load', 'acknowledged.jsonl')
}

function acknowledged() {
  return existsSync(acksFile()) ? readFileSync(acksFile(), 'utf8').split('\n').length - 1 : 0
}

async function until(condition, otherwise) {
  const deadline = performance.now() + 30_000
  while (!condition()) {
    if (interrupted) throw new Error('interrupted')
    if (performance.now() > deadline) throw new Error(otherwise)
    await wait(50)
  }
}

function must(status, otherwise) {
  if (status !== 0) throw new Error(`${otherwise} (exit ${status})`)
}

function title(text) {
  console.log(`\n== ${text} (${seconds()} s)`)
}

function seconds() {
  return ((performance.now() - began) / 1000).toFixed(1)
}
