import { HomeregionError, isHomeregionError } from '../../../domain/errors.ts'
import { requireSameWish } from '../../../domain/fence-wish.ts'
import { tryLogin } from '../login-probe.ts'
import { type CredentialsContext, calledNow, sinkOfItem, writerOf } from './credentials-context.ts'
import { loginFacts, type RoleFacts, refuseWhatMayNotBeDone } from './credentials-preflight.ts'
import type { LoginItem } from './credentials-record.ts'
import { rotate } from './credentials-rotation.ts'

/** Too many sessions for one more: whom the server says it of, it has let in by the password. */
const TOO_MANY = '53300'

type Lifted = { readonly lines: readonly string[]; readonly problems: readonly string[] }

/** Every role as it was before: LOGIN for those that had it, the old password where it was never replaced. */
export async function liftCredentials(context: CredentialsContext, asked: number | null): Promise<readonly string[]> {
  const { record, connection, fault } = context
  const { fence, items } = await record.read()
  if (fence === null) return [`${context.fence.name}: nothing of it stood`]
  requireSameWish({ region: context.region.name, name: context.fence.name }, fence, asked)
  const facts = await loginFacts(
    connection,
    items.filter(i => i.there).map(i => i.role),
  )
  refuseWhatMayNotBeDone(context.region.name, facts)
  await fault('fence:credentials:lift')
  await record.lifting(fence.asked)
  await fault('fence:credentials:lifting')
  const done: Lifted[] = []
  for (const item of items) {
    done.push(await liftOne(context, item, item.there ? facts.roles.find(r => r.role === item.role) : undefined))
    await fault('fence:credentials:restored')
  }
  await record.lifted()
  await fault('fence:credentials:lifted')
  const problems = done.flatMap(d => d.problems)
  const lines = done.flatMap(d => d.lines)
  if (problems.length > 0)
    throw new HomeregionError('fence-failed', {
      fact: `${context.region.name} database: ${problems.join('; ')}`,
      state: `${lines.join('; ')}.`,
      next: `homeregion credentials rotate ${context.region.name}`,
    })
  return lines
}

async function liftOne(context: CredentialsContext, item: LoginItem, role: RoleFacts | undefined): Promise<Lifted> {
  const { record } = context
  if (role === undefined) {
    const namesake = await otherOf(context, item)
    await record.drop(item)
    return { lines: [`${item.fenced}: the role is gone, nothing to bring back${namesake?.line ?? ''}`], problems: namesake?.problems ?? [] }
  }
  // A delivery that was begun may have left a secret in the sink that was never in force; the service would fail with it.
  const stuck = item.phase === 'delivering' ? await rotate(context, item) : null
  const rotated = item.phase === 'rotated' || (item.phase === 'delivering' && stuck === null)
  await record.restore(item)
  const { roles } = await loginFacts(context.connection, [item.role])
  const login = roles[0]?.canLogin === true
  const state = `${calledNow(item)}: ${login ? 'LOGIN' : 'NOLOGIN'}, ${rotated ? 'new' : 'old'} password`
  const lost = login === item.canLogin ? [] : [`${item.role} is ${login ? 'LOGIN' : 'NOLOGIN'}, read back, and was not before`]
  if (stuck !== null)
    return {
      lines: [state, `NOTE ${stuck}; the sink may hold a secret that was never in force: put the old one there, or rotate again`],
      problems: lost,
    }
  if (!login) return { lines: [`${state}, as it was`], problems: lost }
  if (role.expired) return { lines: [`${state}; its validity is over, so it is refused as before`], problems: lost }
  const tried = await tryItsSecret(context, item, rotated)
  return { lines: [tried.line === null ? state : `${state}, ${tried.line}`], problems: [...lost, ...tried.problems] }
}

/** Whoever has the name of a role that is gone: another role, which the fence may have met when it was applied again. */
async function otherOf(
  context: CredentialsContext,
  { fenced, canLogin }: LoginItem,
): Promise<{ readonly line: string; readonly problems: readonly string[] } | null> {
  const [{ items }, { roles }] = await Promise.all([context.record.read(), loginFacts(context.connection, [fenced])])
  const [other] = roles
  // Its own item brings it back.
  if (other === undefined || items.some(i => i.there && i.role === fenced)) return null
  const closed = canLogin && !other.canLogin
  const problems = closed
    ? [`${fenced} was dropped and made anew as NOLOGIN: the role that this fence closed is gone, and this one is left as it is`]
    : []
  return { problems, line: `; another role of that name is ${other.canLogin ? 'LOGIN' : 'NOLOGIN'}, and is left as it is` }
}

type Tried = { readonly line: string | null; readonly problems: readonly string[] }

/** The login the service will make: with what the sink holds, which has to be the secret in force. */
async function tryItsSecret(context: CredentialsContext, item: LoginItem, rotated: boolean): Promise<Tried> {
  const { role } = item
  const writer = writerOf(context, role)
  if (writer === null)
    return {
      line: `its login was not tried: ${role === item.fenced ? 'it is no declared writer' : `NOTE the configuration does not know it by this name`}`,
      problems: [],
    }
  const found = rotated ? await newSecret(context, item) : await configured(context, role)
  if (found !== null && 'problem' in found) return { line: null, problems: [found.problem] }
  if (found === null) return { line: 'its login was not tried: its secret cannot be read here', problems: [] }
  const answer = await tryLogin(writer, found.secret, context.config.policy.callTimeoutMs)
  if (answer.outcome === 'admitted') return { line: `${answer.message} with ${found.place}${found.unproved ?? ''}`, problems: [] }
  if (answer.sqlstate === TOO_MANY) return { line: `${found.place} is right, all its sessions are taken`, problems: [] }
  const why = `${role} is ${answer.outcome === 'refused' ? 'refused' : 'not let in'} with ${found.place}: ${answer.message}${answer.sqlstate === null ? '' : ` (${answer.sqlstate})`}`
  return found.sure
    ? { line: null, problems: [why] }
    : { line: `NOTE ${why}; the configuration may not have the new secret yet`, problems: [] }
}

/** `sure`: it has to be the secret in force. `unproved`: what a login with it does not say. */
type Found = { readonly secret: string; readonly place: string; readonly sure: boolean; readonly unproved?: string }

/** What the sink holds. What this process remembers of a secret proves that it is in force, and nothing about the sink. */
async function newSecret(context: CredentialsContext, item: LoginItem): Promise<Found | { readonly problem: string } | null> {
  const { role } = item
  const sink = sinkOfItem(context, item)
  if (sink?.readsBack === true) {
    const held = await sink
      .read()
      .catch((error: unknown) => ({ why: isHomeregionError(error) ? error.text.fact : `${sink.place} cannot be read` }))
    if (typeof held === 'string') return { secret: held, place: sink.place, sure: true }
    return {
      problem: `the new secret of ${role} is not proved to be where its service reads it: ${held?.why ?? `${sink.place} holds nothing`}`,
    }
  }
  const own = context.inForce.get(role)
  const unproved = `; NOTE ${sink?.place ?? 'its sink'} cannot be read back: whether the service has it is not known here`
  if (own !== undefined) return { secret: own, place: 'the secret that was delivered', sure: true, unproved }
  const found = await configured(context, role)
  return found === null ? null : { ...found, sure: false }
}

async function configured(context: CredentialsContext, role: string): Promise<Found | null> {
  const password = writerOf(context, role)?.password ?? null
  const secret = password === null ? null : await context.secrets.read(password).catch(() => null)
  return secret === null ? null : { secret, place: 'the secret of the configuration', sure: true }
}
