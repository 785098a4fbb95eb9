import { Command, CommanderError, Option } from 'commander'
import { HomeregionError } from '../domain/errors.ts'
import { EXIT, type ExitName } from '../domain/exit-codes.ts'
import { COLOUR_WHEN, colourLevel } from './colour.ts'
import type { CliContext, GlobalOptions, World } from './context.ts'
import { scanGlobals } from './globals.ts'
import { requireOneLines } from './one-line.ts'
import { asCoded, errorJson, printError } from './render/error.ts'
import { createPrinter, type OutputStream, survivePipe } from './render/printer.ts'
import { version } from './version.ts'

type Verb = { register(program: Command, context: CliContext): void }

/** Every verb, in the order `homeregion help` lists them. Each is loaded only when it is asked for. */
const VERBS: Readonly<Record<string, () => Promise<Verb>>> = {
  init: async () => await import('./commands/init.ts'),
  plan: async () => await import('./commands/plan.ts'),
  transfer: async () => await import('./commands/transfer.ts'),
  failover: async () => await import('./commands/failover.ts'),
  approve: async () => await import('./commands/approve.ts'),
  reject: async () => await import('./commands/reject.ts'),
  rejoin: async () => await import('./commands/rejoin.ts'),
  reconcile: async () => await import('./commands/reconcile.ts'),
  failback: async () => await import('./commands/failback.ts'),
  drill: async () => await import('./commands/drill.ts'),
  status: async () => await import('./commands/status.ts'),
  resume: async () => await import('./commands/resume.ts'),
  abort: async () => await import('./commands/abort.ts'),
  run: async () => await import('./commands/run.ts'),
  fence: async () => await import('./commands/fence.ts'),
  credentials: async () => await import('./commands/credentials.ts'),
  agent: async () => await import('./commands/agent.ts'),
  doctor: async () => await import('./commands/doctor.ts'),
  config: async () => await import('./commands/config.ts'),
  key: async () => await import('./commands/key.ts'),
  runbook: async () => await import('./commands/runbook.ts'),
  states: async () => await import('./commands/states.ts'),
  sandbox: async () => await import('./commands/sandbox.ts'),
  help: async () => await import('./commands/help.ts'),
}

export type Io = {
  readonly stdout: OutputStream
  readonly stderr: OutputStream
  readonly env: Readonly<Record<string, string | undefined>>
  readonly cwd: string
}

/** Runs one command line and returns its exit code; nothing in here ends the process. */
export async function run(argv: readonly string[], io: Io): Promise<number> {
  survivePipe(io.stdout)
  survivePipe(io.stderr)
  const globals = scanGlobals(argv)
  const context = createContext(io, globals.color)
  try {
    const program = createProgram(io)
    for (const load of verbsFor(globals.verb)) (await load()).register(program, context.context)
    context.use(program)
    if (argv.length === 0) throw new HomeregionError('usage', { fact: 'no command given', next: 'homeregion help' })
    await program.parseAsync(argv, { from: 'user' })
    return EXIT[context.exitName()].code
  } catch (error) {
    if (error instanceof CommanderError && error.exitCode === 0) return EXIT.done.code
    const coded = error instanceof CommanderError ? usageError(error, globals.verb) : asCoded(error)
    const printer = context.context.err
    if (globals.output === 'json') printer.line(errorJson(coded))
    else printError(coded, printer, (io.env['HOMEREGION_DEBUG'] ?? '') !== '')
    return EXIT[coded.exit].code
  } finally {
    await context.close()
  }
}

function verbsFor(verb: string | undefined): readonly (() => Promise<Verb>)[] {
  const one = verb === undefined || verb === 'help' || !Object.hasOwn(VERBS, verb) ? undefined : VERBS[verb]
  return one === undefined ? Object.values(VERBS) : [one]
}

function createProgram(io: Io): Command {
  return new Command('homeregion')
    .description('Moves write ownership of a business key between regions, and proves each step before the next.')
    .option('--config <file>', 'configuration file (default: HOMEREGION_CONFIG, else homeregion.yaml here or above, up to the git root)')
    .option('--control-plane <url>', 'control plane database, without a password')
    .addOption(new Option('--color <when>', 'colour').choices([...COLOUR_WHEN]).default('auto'))
    .option('-o, --output <format>', 'output format; which ones there are depends on the command', 'text')
    .version(version(), '-V, --version', 'print the version')
    .helpCommand(false)
    .hook('preAction', (_program, verb) => requireOneLines(verb.opts()))
    .exitOverride()
    .configureOutput({
      writeOut: text => void io.stdout.write(text),
      // Said once, by the frame, in the three lines every error has.
      writeErr: () => undefined,
      outputError: () => undefined,
    })
    .addHelpText('after', '\nTopics: homeregion help exit-codes, homeregion help environment')
}

function usageError(error: CommanderError, verb: string | undefined): HomeregionError {
  const known = verb !== undefined && Object.hasOwn(VERBS, verb) && verb !== 'help'
  const fact = error.code === 'commander.help' ? `homeregion ${verb ?? ''} needs a subcommand` : error.message.replace(/^error: /, '')
  return new HomeregionError('usage', {
    fact: fact.replaceAll('\n', ' '),
    state: 'Nothing was read or changed.',
    next: known ? `homeregion ${verb} --help` : 'homeregion help',
  })
}

function createContext(io: Io, color: GlobalOptions['color']) {
  let exitName: ExitName = 'done'
  let program: Command | undefined
  let settings: ReturnType<CliContext['settings']> | undefined
  let world: Promise<World> | undefined
  const options = (): GlobalOptions => program?.opts() ?? { color, output: 'text' }
  const context: CliContext = {
    env: io.env,
    cwd: io.cwd,
    out: createPrinter(io.stdout, colourLevel(color, io.env, io.stdout.isTTY === true)),
    err: createPrinter(io.stderr, colourLevel(color, io.env, io.stderr.isTTY === true)),
    options,
    format: (...offered) => {
      const asked = options().output
      const found = ['text' as const, ...offered].find(name => name === asked)
      if (found !== undefined) return found
      throw new HomeregionError('usage', {
        fact: `-o ${asked} is not offered here; there is text${offered.map(name => `, ${name}`).join('')}`,
        state: 'Nothing was read or changed.',
        next: 'the same command without -o',
      })
    },
    settings: async () => {
      settings ??= import('../adapters/files/config-file.ts').then(file =>
        file.loadConfig({ env: io.env, cwd: io.cwd, flags: options(), ...pick(options().config) }),
      )
      return await settings
    },
    connect: async () => {
      world ??= Promise.all([import('./compose.ts'), context.settings()]).then(([{ compose }, { config }]) => compose(config, io.env))
      return await world
    },
    exit: name => {
      exitName = name
    },
  }
  return {
    context,
    use: (made: Command) => {
      program = made
    },
    exitName: () => exitName,
    // A world that failed to open has reported its error already; closing must not hide it.
    close: async () => await world?.then(async w => await w.close()).catch(() => undefined),
  }
}

function pick(file: string | undefined): { file?: string } {
  return file === undefined ? {} : { file }
}
