import { createSandbox } from '../../../sandbox/sandbox.ts'
import { loadConfig } from '../../adapters/files/config-file.ts'
import { compose } from '../compose.ts'
import type { CliContext } from '../context.ts'

type DirOption = { readonly dir?: string }

export async function sandboxUp(context: CliContext, options: DirOption): Promise<void> {
  const began = performance.now()
  const sandbox = createSandbox({ ...options, progress: line => context.err.line(line) })
  await sandbox.up()
  const seconds = ((performance.now() - began) / 1000).toFixed(1)
  context.err.line(`up in ${seconds} s; folder ${sandbox.layout.dir}`)
  context.out.line('Type next:')
  context.out.line(`  export HOMEREGION_CONFIG=${sandbox.layout.config}`)
  context.out.line(`  ${await firstCommand(context, sandbox.layout.config)}`)
}

const SHOWN_KEY = 'tenant-42'

/** What helps in the state in which an earlier session has left it. */
async function firstCommand(context: CliContext, file: string): Promise<string> {
  const { config } = loadConfig({ file, env: {}, flags: {}, cwd: context.cwd })
  const world = compose(config, context.env)
  try {
    const [exiles, [record]] = await Promise.all([world.controlPlane.exiles(), world.controlPlane.ownership([SHOWN_KEY])])
    const exile = exiles.find(e => e.endedAt === null)
    if (exile !== undefined) return `homeregion rejoin ${exile.region} --reason TEXT`
    const target = config.regions.find(r => r.name !== (record?.homeRegion ?? config.regions[0]?.name))
    return `homeregion transfer ${SHOWN_KEY} --to ${target?.name ?? ''}`
  } finally {
    await world.close()
  }
}

export async function sandboxDown(context: CliContext, options: DirOption & { readonly keep?: boolean }): Promise<void> {
  const sandbox = createSandbox(options)
  const keep = options.keep ?? false
  const { dir } = sandbox.layout
  const was = await sandbox.down({ keep })
  context.err.line(!was ? `there is no sandbox in ${dir}` : keep ? `stopped; data and logs stay in ${dir}` : `stopped; ${dir} is removed`)
}

export function sandboxStatus(context: CliContext, options: DirOption): void {
  const parts = createSandbox(options).status()
  const running = parts.filter(part => part.running).length
  if (context.format('json') === 'json') {
    context.out.line(JSON.stringify({ parts }))
    return
  }
  for (const part of parts) {
    const state = part.running ? `running, process ${part.pid}` : 'not running'
    context.out.line(`${part.name.padEnd(18)} ${state.padEnd(24)} ${part.log}`)
  }
  if (running < parts.length) context.err.line(`${running} of ${parts.length} parts run; next: homeregion sandbox up`)
}
