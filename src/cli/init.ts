import { HomeregionError, isHomeregionError } from '../domain/errors.ts'
import type { CliContext, Installer, World } from './context.ts'
import { isInteractive } from './operator.ts'

export type InitFlags = {
  readonly dryRun?: boolean
  readonly yes?: boolean
  readonly region?: readonly string[]
  readonly without?: readonly string[]
}

/** Every place is looked at before the first one is changed, so that one that refuses stops all of them. */
export async function init(context: CliContext, flags: InitFlags): Promise<void> {
  const format = context.format('json')
  const world = await context.connect()
  const installers = world.installers({ only: flags.region, without: flags.without })
  const looked = await Promise.all(
    installers.map(async installer => ({
      installer,
      statements: await installer.install(true).catch((error: unknown) => {
        throw darkRegion(error, installer, flags)
      }),
    })),
  )
  const todo = looked.filter(l => l.statements.length > 0)
  if (format === 'text') for (const l of looked) context.out.line(described(l.installer, l.statements, flags.dryRun === true))
  // Before the question: what comes of it has to be known to whoever answers.
  for (const region of await withoutLease(context, world))
    context.err.line(
      `note: ${region} stops at its lease's end and has none now: it refuses every write (HR004) until \`homeregion agent\` grants one`,
    )
  if (flags.dryRun !== true && todo.length > 0) {
    await agree(
      context,
      flags,
      todo.map(l => l.installer.place),
    )
    for (const { installer } of todo) {
      await installer.install(false)
      const left = await installer.install(true)
      if (left.length > 0)
        throw new HomeregionError('needs-human', {
          fact: `${installer.place} was installed, and reading it back shows that something is still missing`,
          state: left.slice(0, 3).join('\n'),
          next: 'homeregion doctor',
        })
      if (format === 'text') context.out.line(`${installer.place}: installed, read back`)
    }
  }
  if (format === 'json')
    context.out.line(
      JSON.stringify(
        looked.map(l => ({
          place: l.installer.place,
          statements: l.statements,
          applied: flags.dryRun !== true && l.statements.length > 0,
        })),
      ),
    )
  else if (flags.dryRun === true) context.out.line('Nothing was changed.')
}

/** Who approves stands in the control plane: it can follow the configuration while a region is dark. */
function darkRegion(error: unknown, installer: Installer, { region, without = [] }: InitFlags): unknown {
  if (installer.region === null || region !== undefined || !isHomeregionError(error, 'region-unreachable')) return error
  const next = `homeregion init --without ${[...without, installer.region].join(' ')}   (and again without it when ${installer.region} is back)`
  return new HomeregionError(
    error.code,
    { fact: error.text.fact, state: 'Nothing was changed.', next },
    { cause: error, fields: error.fields },
  )
}

async function withoutLease(context: CliContext, world: World): Promise<readonly string[]> {
  const { config } = await context.settings()
  const stopping = config.regions.filter(r => r.lease?.onAgentOutage === 'stop')
  const looked = await Promise.all(
    stopping.map(async ({ name }) => {
      const lease = await world
        .region(name)
        .facts()
        .then(
          facts => facts.lease,
          () => null,
        )
      return lease !== null && lease.leftMs > 0 ? [] : [name]
    }),
  )
  return looked.flat()
}

function described(installer: Installer, statements: readonly string[], whole: boolean): string {
  if (statements.length === 0) return `${installer.place}: stands as configured, nothing to do`
  if (whole) return `-- ${installer.place}: ${statements.length} statements\n${statements.join('\n')}\n`
  return `${installer.place}: ${statements.length} statements (homeregion init --dry-run shows them)`
}

async function agree(context: CliContext, flags: InitFlags, places: readonly string[]): Promise<void> {
  if (flags.yes === true) return
  if (!isInteractive(context))
    throw new HomeregionError('not-a-terminal', {
      fact: `init would change ${places.join(', ')}, and there is no terminal to ask at`,
      state: 'Nothing was changed.',
      next: 'homeregion init --yes',
    })
  const { confirm } = await import('./prompts.ts')
  const yes = await confirm(
    { message: `Apply to ${places.join(', ')}?`, default: false },
    { output: process.stderr, signal: AbortSignal.timeout(600_000) },
  ).catch(() => false)
  if (!yes) throw new HomeregionError('declined', { fact: 'init was not confirmed', state: 'Nothing was changed.' })
}
