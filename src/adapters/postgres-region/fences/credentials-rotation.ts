import { randomBytes, randomUUID } from 'node:crypto'
import { HomeregionError, isHomeregionError } from '../../../domain/errors.ts'
import { remember } from '../../system/redaction.ts'
import { scramVerifier } from '../scram-verifier.ts'
import { type CredentialsContext, sinkOfItem } from './credentials-context.ts'
import type { LoginItem } from './credentials-record.ts'

/** 256 bits, in characters that no normalisation of passwords changes. */
const SECRET_BYTES = 32

/**
 * A new secret, in the sink, and read back from there where that can be, before it is in force: were it the other way round, a sink that fails would leave a role that nobody can log in as.
 * @returns why the sink did not take it; null: it did, and the secret is in force
 */
export async function rotate(context: CredentialsContext, item: LoginItem): Promise<string | null> {
  const { record, region, fault } = context
  const { role } = item
  const sink = sinkOfItem(context, item)
  if (sink === null) return `${role} has no sink in the configuration any more`
  const secret = randomBytes(SECRET_BYTES).toString('base64url')
  remember(secret)
  const delivery = randomUUID()
  // Dies the process from here to the commit of the rotation, the record says that the sink may hold a secret that was never in force.
  await record.delivering(item.item, delivery)
  await fault('fence:credentials:delivering')
  try {
    await sink.deliver(secret, { region: region.name, role })
    // A sink that says yes and keeps nothing would leave a role that nobody can log in as.
    if (sink.readsBack && (await sink.read()) !== secret)
      return `the new secret of ${role} was not delivered: ${sink.place} took it, and holds another value when it is read back`
  } catch (error) {
    if (isHomeregionError(error, 'fence-failed') || isHomeregionError(error, 'secret-unavailable'))
      return `the new secret of ${role} was not delivered: ${error.text.fact}`
    throw new HomeregionError('fence-failed', { fact: `the new secret of ${role} was not delivered to ${sink.place}` }, { cause: error })
  } finally {
    // A sink is often the very place the configuration reads from.
    context.secrets.forget()
  }
  await fault('fence:credentials:delivered')
  // Only the verifier leaves this process: the statement may be logged, and shows in every list of activity.
  await record.rotate(item, delivery, scramVerifier(secret))
  context.inForce.set(role, secret)
  await fault('fence:credentials:rotated')
  return null
}
