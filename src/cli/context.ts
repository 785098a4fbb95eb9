import type { ChalkInstance } from 'chalk'
import type { LoadedConfig } from '../adapters/files/config-file.ts'
import type { ExitName } from '../domain/exit-codes.ts'
import type { Fence, FenceJournal } from '../domain/fence.ts'
import type { Holder } from '../domain/journal.ts'
import type { ControlPlane, RegionDatabase, RegionStream } from '../domain/ports.ts'
import type { Engine, Operator } from '../engine/context.ts'
import type { ColourWhen } from './colour.ts'

/** One output stream. Everything written passes redaction; `style` is plain where there is no colour. */
export interface Printer {
  readonly style: ChalkInstance
  readonly isTerminal: boolean
  /** Columns of the terminal; 100 off a terminal. */
  readonly columns: number
  write(text: string): void
  line(text?: string): void
}

export type GlobalOptions = {
  readonly config?: string
  readonly controlPlane?: string
  readonly color: ColourWhen
  readonly output: string
}

/** Installs or brings up to date one place. `install(true)` only looks; both return the statements, none when it stands as configured. */
export interface Installer {
  readonly place: string
  /** null: the control plane. */
  readonly region: string | null
  install(dryRun: boolean): Promise<readonly string[]>
}

/** The adapters of one configuration, wired. Connections are made on first use. */
/** `only`: these regions, and not the control plane. `without`: everything but these regions. */
export type InstallChoice = { readonly only?: readonly string[] | undefined; readonly without?: readonly string[] | undefined }

export interface World {
  readonly controlPlane: ControlPlane
  region(name: string): RegionDatabase
  stream(name: string): RegionStream
  /** The boundary of a region and the fences configured for it; made once. */
  fences(region: string): readonly Fence[]
  /** The credentials fences of a region, restricted to these roles: what a rotation applies and lifts. */
  rotations(region: string, roles: readonly string[] | null): readonly Fence[]
  /** What happened to fences, on this machine and in the control plane. */
  readonly fenceJournal: FenceJournal
  /** An engine over these adapters, acting for `operator`. */
  engine(operator: Operator): Engine
  /** The control plane and each region, or only the regions named. */
  installers(choice: InstallChoice): readonly Installer[]
  /** This process, as runs record it. */
  readonly holder: Holder
  close(): Promise<void>
}

/** What a verb gets from the frame. */
export interface CliContext {
  readonly env: Readonly<Record<string, string | undefined>>
  readonly cwd: string
  readonly out: Printer
  readonly err: Printer
  options(): GlobalOptions
  /** The `-o` format: `text` unless asked otherwise. @throws `usage` when the verb does not offer it */
  format<F extends string>(...offered: readonly F[]): F | 'text'
  /** The effective configuration; read once. */
  settings(): Promise<LoadedConfig>
  /** Adapters for the effective configuration; made once, closed by the frame. */
  connect(): Promise<World>
  /** Sets the exit code by name; the process ends by itself when all is written and closed. */
  exit(name: ExitName): void
}
