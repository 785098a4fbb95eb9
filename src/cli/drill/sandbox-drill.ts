import { createDrillSite } from '../../../sandbox/drill-site.ts'
import { formatMs } from '../../domain/duration.ts'
import { HomeregionError } from '../../domain/errors.ts'
import type { ExitName } from '../../domain/exit-codes.ts'
import type { Rehearsal } from '../../domain/rehearsal.ts'
import type { CliContext } from '../context.ts'
import { printable } from '../render/error.ts'
import { noLiveLine } from '../render/progress.ts'
import { rehearsalText } from '../render/rehearsal.ts'
import { rehearse, type Stages } from './rehearse.ts'

const EXITS: Readonly<Record<Rehearsal['outcome'], ExitName>> = { passed: 'done', 'missed-objective': 'changes', failed: 'refused' }

/** The whole of a forced failover, in a sandbox that is there for nothing else. No configuration is read, and nothing outside of it is touched. */
export async function sandboxDrill(context: CliContext, objectiveMs: number): Promise<void> {
  const format = context.format('json')
  const stop = watchStop(() => context.err.line('\ninterrupted: what is being started comes to its end, then the sandbox is taken down'))
  const site = createDrillSite(stop.signal)
  const stages = await createStages(context)
  let taken = false
  try {
    context.err.line(`a sandbox of its own in ${site.dir}`)
    context.err.line(`if this process is killed: homeregion sandbox down --dir ${site.dir}`)
    const result = await rehearse(site, stages, objectiveMs)
    await stages.do('everything is stopped and removed', async () => await site.down())
    taken = true
    context.out.line(format === 'json' ? JSON.stringify(result) : printable(rehearsalText(result)))
    context.exit(EXITS[result.outcome])
  } catch (error) {
    if (!stop.signal.aborted) throw error
    context.exit(stop.name() === 'SIGTERM' ? 'terminated' : 'interrupted')
  } finally {
    if (!taken) {
      stages.close()
      context.err.line('the sandbox is taken down')
      await site.down()
    }
    stop.done()
  }
}

/** Off a terminal a step that takes long says so from time to time: a screen that stands still looks like one that hangs. */
const STILL_MS = 10_000

async function createStages(context: CliContext): Promise<Stages & { close(): void }> {
  const { err } = context
  const live = err.isTerminal ? (await import('../live-line.ts')).createLiveLine(process.stderr) : noLiveLine
  let running: NodeJS.Timeout | undefined
  return {
    do: async (title, work) => {
      const began = performance.now()
      let saidMs = 0
      const still = () => {
        const tookMs = performance.now() - began
        if (live.show(`${title}   (${formatMs(tookMs)})`) || tookMs - saidMs < STILL_MS) return
        saidMs = tookMs
        err.line(`..  ${formatMs(tookMs).padStart(7)}  ${printable(title)}`)
      }
      still()
      running = setInterval(still, 1_000)
      const told = (ok: boolean) => {
        clearInterval(running)
        live.clear()
        const mark = ok ? err.style.green('ok') : err.style.red('NO')
        err.line(`${mark} ${formatMs(performance.now() - began).padStart(7)}  ${printable(title)}`)
      }
      try {
        const value = await work()
        told(true)
        return value
      } catch (error) {
        told(false)
        throw error
      }
    },
    close: () => {
      clearInterval(running)
      live.clear()
    },
  }
}

/** The first signal ends the rehearsal and takes everything down; the second leaves at once. */
function watchStop(tell: () => void): { readonly signal: AbortSignal; name(): NodeJS.Signals | null; done(): void } {
  const controller = new AbortController()
  let seen: NodeJS.Signals | null = null
  const handle = (name: NodeJS.Signals) => {
    if (seen !== null) {
      done()
      process.kill(process.pid, name)
      return
    }
    seen = name
    tell()
    controller.abort(
      new HomeregionError('interrupted', { fact: 'the rehearsal was interrupted', state: 'Nothing outside of its sandbox was touched.' }),
    )
  }
  const done = () => {
    for (const name of ['SIGTERM', 'SIGINT'] as const) process.off(name, handle)
  }
  for (const name of ['SIGTERM', 'SIGINT'] as const) process.on(name, handle)
  return { signal: controller.signal, name: () => seen, done }
}
