import type { SecretReference } from '../../../domain/config.ts'
import { isHomeregionError } from '../../../domain/errors.ts'
import { fail, type Observation, pass, unknown } from '../../../domain/evidence.ts'
import { errorText } from '../../postgres/connection.ts'
import { NOT_PERMITTED, tryLogin, WRONG_PASSWORD } from '../login-probe.ts'
import { leftText, preparedText } from './credentials-apply.ts'
import { type CredentialsContext, writerOf } from './credentials-context.ts'
import { loginFacts } from './credentials-preflight.ts'
import { preparedBy, watchSessions } from './role-sessions.ts'

/** A login of somebody else that is just on its way is gone long before. */
const WATCH_MS = 1_500

/** That nobody is logged in as one of the roles, nobody can be, and none of them left a transaction that could still commit. Only reads. */
export async function proveCredentials(context: CredentialsContext): Promise<readonly Observation[]> {
  const observer = `${context.region.name} database`
  const roles = context.fence.roles.map(r => r.role)
  try {
    const parts = await Promise.all([
      mayNotLogIn(context, roles, observer),
      nobodyIn(context, roles, observer),
      nothingPrepared(context, roles, observer),
      ...roles.map(async role => await refusedLogin(context, role, observer)),
    ])
    return parts.flat()
  } catch (error) {
    return [unknown(observer, `${roles.join(', ')}: NOLOGIN`, isHomeregionError(error) ? error.text.fact : errorText(error))]
  }
}

async function mayNotLogIn(
  { connection }: CredentialsContext,
  roles: readonly string[],
  observer: string,
): Promise<readonly Observation[]> {
  const facts = await loginFacts(connection, roles)
  return roles.map(name => {
    const role = facts.roles.find(r => r.role === name)
    if (role === undefined) return fail(observer, `${name}: NOLOGIN`, `${name}: there is no such role`)
    return (role.canLogin ? fail : pass)(observer, `${name}: NOLOGIN`, `${name}: ${role.canLogin ? 'LOGIN' : 'NOLOGIN'}`)
  })
}

async function nobodyIn({ connection }: CredentialsContext, roles: readonly string[], observer: string): Promise<Observation> {
  const required = `no session of ${roles.join(', ')} on two looks, none that is still logging in`
  const quiet = await watchSessions(connection, roles, WATCH_MS)
  const { sessions, starting } = quiet.left
  const facts = { sessions: sessions.length, starting: starting.length }
  if (quiet.quiet) return pass(observer, required, 'none on two looks', facts)
  // Whose a nameless session is cannot be told; it need not be one of theirs.
  return (sessions.length > 0 ? fail : unknown)(observer, required, leftText(quiet), facts)
}

async function nothingPrepared({ connection }: CredentialsContext, roles: readonly string[], observer: string): Promise<Observation> {
  const required = `no prepared transaction of ${roles.join(', ')}`
  const prepared = await preparedBy(connection, roles)
  return prepared.length === 0 ? pass(observer, required, 'none') : fail(observer, required, prepared.map(preparedText).join('; '))
}

async function refusedLogin(context: CredentialsContext, role: string, observer: string): Promise<Observation> {
  const required = `login as ${role} with the configuration's secret is refused with ${WRONG_PASSWORD} or ${NOT_PERMITTED}`
  const writer = writerOf(context, role)
  if (writer === null) return unknown(observer, required, `${role} is no declared writer, so its login cannot be tried`)
  const secret = await secretOf(context, writer.password)
  if (typeof secret === 'object' && secret !== null) return unknown(observer, required, secret.why)
  const answer = await tryLogin(writer, secret, context.config.policy.callTimeoutMs)
  const observed = `${role}: ${answer.outcome === 'admitted' ? answer.message : `${answer.sqlstate ?? 'no answer'}: ${answer.message}`}`
  const facts = { sqlstate: answer.sqlstate }
  if (answer.outcome === 'admitted') return fail(observer, required, observed, facts)
  const exact = answer.sqlstate === WRONG_PASSWORD || answer.sqlstate === NOT_PERMITTED
  return (exact ? pass : unknown)(observer, required, observed, facts)
}

async function secretOf(
  { secrets }: CredentialsContext,
  reference: SecretReference | null,
): Promise<string | null | { readonly why: string }> {
  if (reference === null) return null
  try {
    return await secrets.read(reference)
  } catch (error) {
    if (isHomeregionError(error)) return { why: error.text.fact }
    throw error
  }
}
