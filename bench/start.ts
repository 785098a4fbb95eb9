/**
 * What it costs to start the command line, as ratios of paired runs beside a bare node, so that a busy machine slows both; and the memory of
 * a move. `npm run bench:start -- --pairs 30`
 */
import { spawn } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { parseArgs } from 'node:util'
import { packageFile } from '../src/adapters/files/package-root.ts'
import { ensureBundle } from '../test/rig/bundle.ts'
import { attachRig, startRig } from '../test/rig/rig.ts'

const { values: flags } = parseArgs({
  options: {
    pairs: { type: 'string', default: '30' },
    /** Folder of a sandbox that runs already. */
    dir: { type: 'string' },
  },
})
const pairs = Number(flags.pairs)
const MEMORY_AIM_MB = 120
const KEY = 'tenant-8'

ensureBundle()
const bare = ['-e', '0']
const command = (...args: string[]) => [packageFile('bin', 'homeregion.js'), ...args]

await paired('--version', command('--version'), 1.25, {})
const rig = flags.dir === undefined ? await startRig() : await attachRig({ dir: flags.dir })
try {
  const environment = { HOMEREGION_CONFIG: rig.config }
  await paired('status', command('status'), 2, environment)
  const control = await rig.pg('control-plane')
  const home = await control.query<{ home: string }>('select home_region as home from homeregion_control.ownership where key = $1', [KEY])
  const target = home.rows[0]?.home === 'region-a' ? 'region-b' : 'region-a'
  const move = await timed(command('transfer', KEY, '--to', target, '--yes', '--confirm', KEY, '--observe', '3s'), environment)
  const peakMb = move.peakKb / 1024
  say(peakMb <= MEMORY_AIM_MB, `memory of a move: peak ${peakMb.toFixed(0)} MB resident, aim ${MEMORY_AIM_MB} MB`)
} finally {
  await rig.stop()
}

async function paired(name: string, args: readonly string[], aim: number, environment: Readonly<Record<string, string>>): Promise<void> {
  const ratios: number[] = []
  const ours: number[] = []
  const theirs: number[] = []
  const cpu = new Map<readonly string[], number>()
  // One of each first: the files they read are in memory after that.
  await timed(bare, {})
  await timed(args, environment)
  for (let i = 0; i < pairs; i += 1) {
    // A B, B A: what drifts on the machine hits both alike.
    const order = i % 2 === 0 ? [bare, args] : [args, bare]
    const seen = new Map<readonly string[], number>()
    for (const one of order) {
      const before = childrenTicks()
      seen.set(one, (await timed(one, one === args ? environment : {})).tookMs)
      cpu.set(one, (cpu.get(one) ?? 0) + childrenTicks() - before)
    }
    const [own, other] = [seen.get(args) ?? 0, seen.get(bare) ?? 0]
    ratios.push(own / other)
    ours.push(own)
    theirs.push(other)
  }
  const ratio = median(ours) / median(theirs)
  const fastest = Math.min(...ours) / Math.min(...theirs)
  const [low, high] = [Math.min(...ratios), Math.max(...ratios)].map(r => r.toFixed(2))
  say(
    ratio <= aim,
    `${name}: ${ratio.toFixed(2)} of bare node (${median(ours).toFixed(0)} ms, ${median(theirs).toFixed(0)} ms), aim ${aim}; ` +
      `processor time ${((cpu.get(args) ?? 0) / (cpu.get(bare) ?? 0)).toFixed(2)}, fastest of each ${fastest.toFixed(2)}, single pairs ${low} to ${high}`,
  )
}

/** Processor time of all children that have ended, in the kernel's ticks: what a busy machine does not change. */
function childrenTicks(): number {
  const stat = readFileSync('/proc/self/stat', 'utf8')
  // The command's name may hold spaces; the fields that follow its last bracket do not. cutime and cstime are the 16th and 17th of all.
  const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ')
  return Number(fields[13]) + Number(fields[14])
}

/** Runs node to its end; its time, and the highest resident memory that was seen. @throws when it fails */
async function timed(args: readonly string[], environment: Readonly<Record<string, string>>): Promise<{ tookMs: number; peakKb: number }> {
  const startedMs = performance.now()
  const child = spawn(process.execPath, [...args], {
    cwd: packageFile(),
    env: { PATH: process.env['PATH'] ?? '', ...environment },
    stdio: ['ignore', 'ignore', 'pipe'],
  })
  let said = ''
  child.stderr.setEncoding('utf8').on('data', (text: string) => {
    said += text
  })
  let peakKb = 0
  const looking = setInterval(() => {
    peakKb = Math.max(peakKb, peakOf(child.pid ?? -1))
  }, 50)
  const code = await new Promise<number | null>((resolve, reject) => {
    child.once('error', reject)
    child.once('exit', resolve)
  })
  clearInterval(looking)
  if (code !== 0) throw new Error(`node ${args.join(' ')} ended with ${code}:\n${said}`)
  return { tookMs: performance.now() - startedMs, peakKb }
}

/** The kernel keeps the highest value itself, so looking now and then misses nothing but the last instant. */
function peakOf(pid: number): number {
  try {
    return Number(/^VmHWM:\s+(\d+) kB/m.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1] ?? 0)
  } catch {
    return 0
  }
}

function median(values: readonly number[]): number {
  return [...values].sort((a, b) => a - b)[Math.floor(values.length / 2)] ?? Number.NaN
}

function say(reached: boolean, text: string): void {
  process.stdout.write(`${reached ? 'ok  ' : 'MISS'} ${text}\n`)
}
