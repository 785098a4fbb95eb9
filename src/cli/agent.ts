import { setMaxListeners } from 'node:events'
import { createAgent } from '../agent/agent.ts'
import { serveAgent } from '../agent/http.ts'
import type { AgentLog } from '../agent/parts.ts'
import type { CliContext } from './context.ts'
import { printable } from './render/error.ts'

export async function agent(context: CliContext, flags: { readonly once?: boolean; readonly listen?: string }): Promise<void> {
  const format = context.format('json')
  const { config } = await context.settings()
  const world = await context.connect()
  const { composeAgent } = await import('./compose-agent.ts')
  const log: AgentLog = (event, fields = {}) => context.err.line(JSON.stringify({ at: new Date().toISOString(), event, ...fields }))
  const automatic = config.policy.automatic === null ? null : (await import('./compose-automatic.ts')).composeAutomatic(context, world, log)
  const { parts, close } = composeAgent(config, context.env, world, log, automatic)
  const made = createAgent(parts)
  try {
    if (flags.once === true) return await once(context, made, format)
    const http = await serveAgent(flags.listen ?? config.agent.listen, parts.metrics, () => made.health())
    log('listening', { address: http.address })
    const stopping = watchStop(log)
    try {
      await made.run(stopping.signal)
    } finally {
      stopping.done()
      await http.close()
    }
  } finally {
    await close()
  }
}

async function once(context: CliContext, made: ReturnType<typeof createAgent>, format: 'text' | 'json'): Promise<void> {
  const renewals = await made.once()
  if (format === 'json') context.out.line(JSON.stringify(renewals))
  else
    for (const { region, renewal } of renewals)
      context.out.line(
        printable(
          renewal.outcome === 'granted'
            ? `${region}: lease granted (${renewal.generation})`
            : `${region}: ${renewal.outcome}: ${renewal.reason}`,
        ),
      )
  if (renewals.length === 0 && format === 'text') context.out.line('no region has a lease; looked at all of them')
  if (renewals.every(r => r.renewal.outcome === 'granted')) return
  context.exit(renewals.every(r => r.renewal.outcome === 'failed') ? 'unreachable' : 'refused')
}

/** The first signal ends the loops after the call they are in; the second leaves at once. */
function watchStop(log: AgentLog): { readonly signal: AbortSignal; done(): void } {
  const controller = new AbortController()
  // Each of the agent's loops waits on it, and one for each region is more than Node takes for a leak.
  setMaxListeners(0, controller.signal)
  const handle = (name: NodeJS.Signals) => {
    if (controller.signal.aborted) {
      done()
      process.kill(process.pid, name)
      return
    }
    log('stopping', { signal: name })
    controller.abort()
  }
  const done = () => {
    for (const name of ['SIGTERM', 'SIGINT'] as const) process.off(name, handle)
  }
  for (const name of ['SIGTERM', 'SIGINT'] as const) process.on(name, handle)
  return { signal: controller.signal, done }
}
