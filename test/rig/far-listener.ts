import { spawn } from 'node:child_process'
import { closeSync, existsSync, openSync, readFileSync, statSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { freePorts } from '../../sandbox/free-ports.ts'
import type { KafkaPorts } from '../../sandbox/kafka-properties.ts'
import { kafkaRuntime } from '../../sandbox/kafka-runtime.ts'
import { isRunning, type ProcessRecord, type ProcessTable, startTimeOf, stopProcess } from '../../sandbox/processes.ts'
import { waitUntil } from '../../sandbox/wait-until.ts'

const READY_MS = 120_000

/**
 * Starts the broker of `dir` again with one listener more, which tells its clients to come through `advertised`: a proxy in front of a broker
 * sees the first contact only, since a broker names its own address to whoever asks. @returns the listener's own port
 */
export async function withFarListener(at: { dir: string; name: string; advertised: number; table: ProcessTable }): Promise<number> {
  const { dir, name, advertised, table } = at
  const running = table.find(name)
  if (running !== null) await stopProcess(running)
  const [far = 0] = await freePorts(1)
  const file = join(dir, 'server.properties')
  const lines = readFileSync(file, 'utf8').trim().split('\n')
  const more: Readonly<Record<string, string>> = {
    listeners: `,FAR://127.0.0.1:${far}`,
    'advertised.listeners': `,FAR://127.0.0.1:${advertised}`,
    'listener.security.protocol.map': ',FAR:SASL_PLAINTEXT',
  }
  const changed = lines
    .map(line => line.replace(/,FAR:[^,]*/g, ''))
    .filter(line => !line.startsWith('listener.name.far.'))
    .map(line => line + (more[line.slice(0, line.indexOf('='))] ?? ''))
  const jaas = 'listener.name.far.scram-sha-256.sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required;'
  writeFileSync(file, `${[...changed, jaas].join('\n')}\n`, { mode: 0o600 })
  const started = await launch(dir, name)
  table.record(started)
  const ports = JSON.parse(readFileSync(join(dir, 'ports.json'), 'utf8')) as KafkaPorts
  writeFileSync(join(dir, 'ports.json'), JSON.stringify({ ...ports, readyPid: started.pid }))
  return far
}

async function launch(dir: string, name: string): Promise<ProcessRecord> {
  const log = join(dir, 'kafka.log')
  const before = existsSync(log) ? statSync(log).size : 0
  const out = openSync(log, 'a')
  const { program, args } = (await kafkaRuntime(dir, name)).broker([])
  const child = spawn(program, args, { cwd: dir, detached: true, stdio: ['ignore', out, out] })
  closeSync(out)
  child.unref()
  const pid = child.pid ?? -1
  const startTime = startTimeOf(pid)
  if (startTime === null) throw new Error(`${name} could not be started`)
  const started: ProcessRecord = { name, pid, startTime, stopSignal: 'SIGTERM', graceMs: 10_000, container: null }
  const ready = () => readFileSync(log).subarray(before).toString('utf8').includes('Kafka Server started')
  await waitUntil(() => ready() || !isRunning(started), READY_MS)
  if (!ready()) throw new Error(`${name} did not start: read ${log}`)
  return started
}
