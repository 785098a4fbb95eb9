import type { Config, FenceConfig, RegionConfig, SecretSink, Writer } from '../../../domain/config.ts'
import { type ErrorText, HomeregionError } from '../../../domain/errors.ts'
import type { FaultPoint } from '../../../domain/ports.ts'
import type { Sink } from '../../../domain/sink.ts'
import type { Connection } from '../../postgres/connection.ts'
import type { Secrets } from '../../system/secrets.ts'
import { boundaryError, sqlstate } from '../boundary-error.ts'
import { loginRole } from '../quoting.ts'
import { fencerOf } from '../topology.ts'
import { loginFacts, passwordChanged } from './credentials-preflight.ts'
import { type CredentialsRecord, type LoginItem, OVERTAKEN } from './credentials-record.ts'

export type CredentialsConfig = Extract<FenceConfig, { kind: 'credentials' }>

/** What every part of the fence works with. */
export type CredentialsContext = {
  readonly region: RegionConfig
  readonly fence: CredentialsConfig
  readonly config: Config
  readonly secrets: Secrets
  readonly sinkOf: (sink: SecretSink) => Sink
  readonly connection: Connection
  readonly record: CredentialsRecord
  readonly fault: FaultPoint
  /** Secrets this process has put into force, by role. */
  readonly inForce: Map<string, string>
}

export type Standing = { readonly lines: readonly string[]; readonly items: readonly LoginItem[] }

export function writerOf({ region }: CredentialsContext, role: string): Writer | null {
  return region.database.writers.find(w => w.role === role) ?? null
}

export function sinkFor({ fence, sinkOf }: CredentialsContext, role: string): Sink | null {
  const configured = fence.roles.find(r => r.role === role)
  return configured === undefined ? null : sinkOf(configured.sink)
}

/** By what the role is called now, or was called when it was fenced: the configuration may know either. */
export function sinkOfItem(context: CredentialsContext, { role, fenced }: LoginItem): Sink | null {
  return sinkFor(context, role) ?? sinkFor(context, fenced)
}

/** Logins without which nobody could lift the fence. */
export function ownLogins({ region }: CredentialsContext): readonly string[] {
  return [loginRole(fencerOf(region)), loginRole(region.database.operator)]
}

const HOW_FAR = {
  closed: 'password unchanged',
  delivering: 'password unchanged, a new secret was on its way to the sink',
  rotated: 'password replaced',
} as const

/** One line for each role of the record, its LOGIN read back. */
export async function readStanding(context: CredentialsContext): Promise<Standing> {
  const { items } = await context.record.read()
  const facts = await loginFacts(
    context.connection,
    items.map(i => i.role),
  )
  const lines = await Promise.all(
    items.map(async item => {
      const role = item.there ? facts.roles.find(r => r.role === item.role) : undefined
      if (role === undefined) return `${item.fenced}: the role is gone`
      const byHand =
        item.phase !== 'rotated' && item.passwordDigest !== null && facts.fencer.superuser
          ? await passwordChanged(context.connection, item.role, item.passwordDigest)
          : false
      return `${calledNow(item)}: ${role.canLogin ? 'LOGIN, given back from outside' : 'NOLOGIN'}, ${byHand ? 'password changed from outside' : HOW_FAR[item.phase]}`
    }),
  )
  return { lines, items }
}

export function calledNow({ role, fenced }: LoginItem): string {
  return role === fenced ? role : `${role}, which was ${fenced}`
}

/** Found before anything was changed, or settled by other means than going on. */
const TOLD_WHOLE = ['fence-asked-again', 'not-initialised', 'config-invalid', 'secret-unavailable']

/** What went wrong on the way, with what stands now: read back, or said that it could not be. */
export async function failed(context: CredentialsContext, verb: 'apply' | 'lift', error: unknown): Promise<HomeregionError> {
  const coded = overtaken(error, context.region.name) ?? boundaryError(error, context.region.name)
  if (coded.text.state === 'Nothing was changed.' || TOLD_WHOLE.includes(coded.code)) return coded
  const stands = await readStanding(context).then(
    ({ lines }) => (lines.length === 0 ? 'Nothing of the fence stands.' : `${lines.join('; ')} (read back).`),
    () => 'What stands could not be read back.',
  )
  const own: Partial<ErrorText> = coded.code === 'fence-failed' ? coded.text : {}
  const again = `homeregion fence ${verb} ${context.region.name} --fence ${context.fence.name} --reason …, which goes on from there`
  return new HomeregionError(
    coded.code,
    {
      fact: coded.text.fact,
      state: [stands, ...(own.state === undefined ? [] : [own.state])].join(' '),
      next: own.next ?? (coded.code === 'privilege-missing' ? coded.text.next : undefined) ?? again,
    },
    { cause: coded.cause ?? coded, retriable: coded.retriable, fields: { ...coded.fields, region: context.region.name } },
  )
}

function overtaken(error: unknown, region: string): HomeregionError | null {
  if (sqlstate(error) !== OVERTAKEN) return null
  return new HomeregionError(
    'superseded',
    { fact: `${region} database: another homeregion went on with this fence meanwhile` },
    { cause: error },
  )
}
