import { HomeregionError } from '../../../domain/errors.ts'
import type { FenceCause } from '../../../domain/fence.ts'
import { alreadyStood } from '../../../domain/fence-wish.ts'
import { type LoginAnswer, NOT_PERMITTED, tryLogin, WRONG_PASSWORD } from '../login-probe.ts'
import { type CredentialsContext, ownLogins, readStanding, writerOf } from './credentials-context.ts'
import { loginFacts, refuseWhatCannotBeFenced } from './credentials-preflight.ts'
import { rotate } from './credentials-rotation.ts'
import { endSessions, type Prepared, preparedBy, type Quiet } from './role-sessions.ts'

/** `old`: it is surely the secret that was in force before the fence; after a run that died it may be the new one. */
type Known = { readonly role: string; readonly secret: string; readonly old: boolean }
type Probes = ReadonlyMap<string, LoginAnswer>

/**
 * NOLOGIN for all, their sessions ended, then a new secret for each: whoever passed the question before NOLOGIN is among those that are ended,
 * and who comes later is refused. The sessions end before the sinks are asked, which may take long or fail.
 */
export async function applyCredentials(context: CredentialsContext, cause: FenceCause): Promise<readonly string[]> {
  const { connection, record, fault } = context
  const roles = context.fence.roles.map(r => r.role)
  const facts = await loginFacts(connection, roles)
  refuseWhatCannotBeFenced(context.region.name, facts, roles, ownLogins(context))
  const known = await knownSecrets(context, roles)
  const before = (await record.read()).fence
  await fault('fence:credentials:close')
  await record.close(roles, cause, facts.fencer.superuser)
  await fault('fence:credentials:closed')
  const [swept, closed] = [await endSessions(connection, roles, context.config.policy.callTimeoutMs), await probe(context, known)]
  await fault('fence:credentials:ended')
  const undelivered = await rotateAll(context)
  const [again, rotated] = [await endSessions(connection, roles, context.config.policy.callTimeoutMs), await probe(context, known)]
  const prepared = await preparedBy(connection, roles)
  const problems = [
    ...undelivered,
    ...openDoors(known, rotated, undelivered.length === 0),
    ...(again.quiet ? [] : [`${leftText(again)} after ${context.config.policy.callTimeoutMs} ms`]),
    ...prepared.map(preparedText),
  ]
  const sessions = `${swept.ended + again.ended} sessions ended${startingText(swept, again)}`
  if (problems.length > 0)
    throw new HomeregionError('fence-failed', { fact: `${context.region.name} database: ${problems.join('; ')}`, state: `${sessions}.` })
  await record.applied()
  await fault('fence:credentials:applied')
  const { lines } = await readStanding(context)
  return [
    ...lines,
    `${sessions}, none left on two looks, 0 prepared transactions`,
    ...known.map(k => probeText(k, closed, rotated)),
    ...alreadyStood(before, cause),
  ]
}

/** What the configuration gives now, before a sink could change it. Where there is none the fence goes on without this proof. */
async function knownSecrets(context: CredentialsContext, roles: readonly string[]): Promise<readonly Known[]> {
  const { items } = await context.record.read()
  const read = roles.map(async (role): Promise<readonly Known[]> => {
    const password = writerOf(context, role)?.password ?? null
    const secret = password === null ? null : await context.secrets.read(password).catch(() => null)
    const phase = items.find(i => i.there && i.role === role)?.phase ?? 'closed'
    return secret === null ? [] : [{ role, secret, old: phase === 'closed' }]
  })
  return (await Promise.all(read)).flat()
}

async function rotateAll(context: CredentialsContext): Promise<readonly string[]> {
  const { items } = await context.record.read()
  const problems: string[] = []
  for (const { role } of context.fence.roles) {
    const item = items.find(i => i.there && i.role === role)
    if (item === undefined || item.phase === 'rotated') continue
    const problem = await rotate(context, item)
    if (problem !== null) problems.push(problem)
  }
  return problems
}

async function probe(context: CredentialsContext, known: readonly Known[]): Promise<Probes> {
  const answers = known.map(async ({ role, secret }) => {
    const writer = writerOf(context, role)
    const answer = writer === null ? null : await tryLogin(writer, secret, context.config.policy.callTimeoutMs)
    return answer === null ? [] : [[role, answer] as const]
  })
  return new Map((await Promise.all(answers)).flat())
}

/** A login that was not refused as it has to be. What could not be asked is told by `verify`. */
function openDoors(known: readonly Known[], answers: Probes, rotated: boolean): readonly string[] {
  return known.flatMap(({ role, old }) => {
    const answer = answers.get(role)
    if (answer?.outcome === 'admitted') return [`${role} was let in with the secret of the configuration (${answer.message})`]
    if (old && rotated && answer?.sqlstate === NOT_PERMITTED)
      return [`the old secret of ${role} is right even after the rotation (${NOT_PERMITTED}): the server does not ask for this password`]
    return []
  })
}

function probeText({ role, old }: Known, closed: Probes, rotated: Probes): string {
  const [before, after] = [closed.get(role), rotated.get(role)]
  const secret = old ? `the old secret of ${role}` : `the secret the configuration has for ${role}`
  const stale = old && before?.sqlstate === WRONG_PASSWORD ? '; it was not the one in force before either' : ''
  return `${secret}: refused ${answerText(before)} with NOLOGIN, ${answerText(after)} after the rotation${stale}`
}

function answerText(answer: LoginAnswer | undefined): string {
  if (answer === undefined) return 'not tried'
  return answer.sqlstate ?? `not decided (${answer.message})`
}

export function leftText({ left }: Quiet): string {
  const named = left.sessions.map(s => `${s.role}: ${s.text}`)
  return [...named, ...left.starting.map(s => `pid ${s.pid}, which has been logging in all the while`)].join('; ') + ' still there'
}

function startingText(...sweeps: readonly Quiet[]): string {
  const count = sweeps.reduce((sum, s) => sum + s.startingEnded, 0)
  return count === 0 ? '' : ` and ${count} that were still logging in`
}

export function preparedText(p: Prepared): string {
  return `prepared transaction '${p.gid}' of ${p.role} in ${p.database}, ${Math.round(p.ageMs / 1000)} s old, can be committed by anybody who may: COMMIT PREPARED or ROLLBACK PREPARED is yours to decide`
}
