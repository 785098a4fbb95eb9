import { execFile, spawn } from 'node:child_process'
import { closeSync, existsSync, mkdirSync, openSync, readFileSync, statSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { freePorts } from '../../sandbox/free-ports.ts'
import { kafkaRuntime } from '../../sandbox/kafka-runtime.ts'
import { isRunning, type ProcessRecord, startTimeOf } from '../../sandbox/processes.ts'
import { waitUntil } from '../../sandbox/wait-until.ts'

/** Broker 2 of the cluster whose only other broker, and controller, has its folder in `first`. What one broker has no other to differ from. */
export async function startSecondBroker(first: string, dir: string): Promise<ProcessRecord> {
  mkdirSync(dir, { recursive: true, mode: 0o700 })
  const runtime = await kafkaRuntime(dir, 'second-broker')
  const properties = join(dir, 'server.properties')
  if (!existsSync(properties)) {
    const [client, internal] = await freePorts(2)
    const own = new Map<string, string>([
      ['process.roles', 'broker'],
      ['node.id', '2'],
      ['listeners', `CLIENT://127.0.0.1:${client},INTERNAL://127.0.0.1:${internal}`],
      ['advertised.listeners', `CLIENT://127.0.0.1:${client},INTERNAL://127.0.0.1:${internal}`],
      ['log.dirs', join(dir, 'data')],
    ])
    const lines = readFileSync(join(first, 'server.properties'), 'utf8').trim().split('\n')
    const name = (line: string) => line.slice(0, line.indexOf('='))
    writeFileSync(properties, lines.map(l => (own.has(name(l)) ? `${name(l)}=${own.get(name(l))}\n` : `${l}\n`)).join(''))
    const clusterId = readFileSync(join(first, 'formatted'), 'utf8')
    const { program, args } = runtime.offline('kafka.tools.StorageTool', ['format', '--cluster-id', clusterId, '--config', properties])
    await promisify(execFile)(program, args, { cwd: dir, timeout: 60_000 })
  }
  const log = join(dir, 'kafka.log')
  const before = existsSync(log) ? statSync(log).size : 0
  const out = openSync(log, 'a')
  const { program, args } = runtime.broker([])
  const child = spawn(program, args, { cwd: dir, detached: true, stdio: ['ignore', out, out] })
  closeSync(out)
  child.unref()
  const pid = child.pid ?? -1
  const startTime = startTimeOf(pid)
  if (startTime === null) throw new Error('the second broker could not be started')
  const started: ProcessRecord = { name: 'second-broker', pid, startTime, stopSignal: 'SIGTERM', graceMs: 10_000, container: null }
  const ready = () => readFileSync(log).subarray(before).toString('utf8').includes('Kafka Server started')
  await waitUntil(() => ready() || !isRunning(started), 90_000)
  if (!ready()) throw new Error(`the second broker did not start: read ${log}`)
  return started
}
