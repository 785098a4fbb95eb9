import type { FenceStep } from '../../../domain/fence.ts'
import { type CredentialsContext, ownLogins, sinkFor, sinkOfItem } from './credentials-context.ts'
import { loginFacts, refuseWhatCannotBeFenced, refuseWhatMayNotBeDone } from './credentials-preflight.ts'
import { alterRole, type LoginItem } from './credentials-record.ts'
import { lookAtSessions, preparedBy } from './role-sessions.ts'

/** What stands where a secret's digest will stand. */
const VERIFIER = `PASSWORD '<SCRAM-SHA-256 verifier of a new secret>'`

export async function planCredentials(context: CredentialsContext, direction: 'apply' | 'lift'): Promise<readonly FenceStep[]> {
  return direction === 'apply' ? await planApply(context) : await planLift(context)
}

async function planApply(context: CredentialsContext): Promise<readonly FenceStep[]> {
  const { connection, record, region } = context
  const roles = context.fence.roles.map(r => r.role)
  const facts = await loginFacts(connection, roles)
  refuseWhatCannotBeFenced(region.name, facts, roles, ownLogins(context))
  const [{ items }, look, prepared] = await Promise.all([record.read(), lookAtSessions(connection, roles), preparedBy(connection, roles)])
  const left = roles.filter(role => items.find(i => i.there && i.role === role)?.phase !== 'rotated')
  const step = (text: string, why: string): FenceStep => ({ place: `${region.name} database`, text, why })
  const of = (role: string) => look.sessions.filter(s => s.role === role).length
  return [
    ...facts.roles
      .filter(r => r.canLogin)
      .map(r => step(alterRole(r.role, 'NOLOGIN'), 'no new session from its commit on; all roles in one transaction, with what they were')),
    ...roles.map(role =>
      step(
        `pg_terminate_backend for every session of ${role}, ${of(role)} now, and for those still logging in, until two looks find none`,
        'a session that is open survives NOLOGIN; what it had not committed is rolled back',
      ),
    ),
    ...left.flatMap(role => [
      {
        place: sinkFor(context, role)?.place ?? 'its sink',
        text: `the new secret of ${role}`,
        why: 'before it is in force, so that it is never lost',
      },
      step(alterRole(role, VERIFIER), 'the old secret is worth nothing from its commit on; the secret itself never reaches the server'),
    ]),
    ...roles.map(role =>
      step(`log in as ${role} with the old secret`, 'the proof: refused with 28000 before the rotation and 28P01 after it'),
    ),
    ...prepared.map(p =>
      step(
        `none: prepared transaction '${p.gid}' of ${p.role} in ${p.database} is left alone`,
        'the fence will not pass before you settle it',
      ),
    ),
  ]
}

async function planLift(context: CredentialsContext): Promise<readonly FenceStep[]> {
  const { connection, record, region } = context
  const { fence, items } = await record.read()
  if (fence === null) return []
  const facts = await loginFacts(
    connection,
    items.filter(i => i.there).map(i => i.role),
  )
  refuseWhatMayNotBeDone(region.name, facts)
  const step = (text: string, why: string): FenceStep => ({ place: `${region.name} database`, text, why })
  const there = items.filter(item => item.there)
  return there.flatMap(item => [...redelivery(context, item, step), ...restoration(item, step)])
}

type Step = (text: string, why: string) => FenceStep

function redelivery(context: CredentialsContext, item: LoginItem, step: Step): readonly FenceStep[] {
  if (item.phase !== 'delivering') return []
  return [
    {
      place: sinkOfItem(context, item)?.place ?? 'its sink',
      text: `a new secret of ${item.role}`,
      why: 'a delivery was begun and not finished: the sink may hold a secret that was never in force',
    },
    step(alterRole(item.role, VERIFIER), 'so that the secret in the sink is the one in force'),
  ]
}

function restoration(item: LoginItem, step: Step): readonly FenceStep[] {
  if (!item.canLogin) return [step(`none: ${item.role} stays NOLOGIN`, 'it could not log in before the fence')]
  return [
    step(alterRole(item.role, 'LOGIN'), 'it could log in before the fence'),
    step(`log in as ${item.role}`, 'read back: the service will do the same'),
  ]
}
