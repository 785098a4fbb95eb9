import type { Config, FenceConfig, RegionConfig } from '../../../domain/config.ts'
import { HomeregionError, isHomeregionError } from '../../../domain/errors.ts'
import type { Fence, FenceCause, FenceStatus, FenceStep } from '../../../domain/fence.ts'
import { alreadyStood, requireSameWish } from '../../../domain/fence-wish.ts'
import type { FaultPoint } from '../../../domain/ports.ts'
import { type Connection, createConnection, type Secrets } from '../../postgres/connection.ts'
import { boundaryError, sqlstate } from '../boundary-error.ts'
import { fencerOf } from '../topology.ts'
import { type GrantedWrite, grantedWrites, revocation, type WriteScope, writeScope } from './granted-writes.ts'
import { grants, type PrivilegeStatement, privilegeItem, privilegeRecord, privilegeText, revokes } from './privileges.ts'
import { createReadOnlyProof } from './read-only-proof.ts'
import {
  forget,
  heldLines,
  markApplied,
  openRecord,
  type ReadOnlyStanding,
  type RecordedPrivilege,
  readRecord,
  recordedPrivileges,
  remember,
} from './read-only-record.ts'
import { allThere, refuseShared, refuseUnreachable, stillThere } from './read-only-refusals.ts'
import { inTransaction, runPrivileges, statementText } from './transaction.ts'
import { barrierGranted, endSessions, holderText, lockStatement, tableHolders } from './write-barrier.ts'

export type ReadOnlyConfig = Extract<FenceConfig, { kind: 'read-only' }>

/**
 * Takes every granted privilege to write the guarded tables away, records each with its grantor in the same transaction, and waits until nobody
 * who wrote before is left. What an owner or a superuser may do, nothing can take: the proof says who that is.
 */
export function createReadOnlyFence(
  region: RegionConfig,
  fence: ReadOnlyConfig,
  config: Config,
  secrets: Secrets,
  fault: FaultPoint,
): Fence {
  const connection = createConnection({
    login: fencerOf(region),
    secrets,
    name: `${region.name} database`,
    applicationName: 'homeregion fence',
    callTimeoutMs: config.policy.callTimeoutMs,
    unreachable: 'region-unreachable',
  })
  const scope = writeScope(config, region)
  const at = { region: region.name, name: fence.name }
  const proof = createReadOnlyProof(region, config, secrets, connection, scope, at)
  const place = `${region.name} database`
  const coded = async <T>(work: () => Promise<T>): Promise<T> => {
    try {
      return await work()
    } catch (error) {
      throw isHomeregionError(error) ? error : boundaryError(error, region.name)
    }
  }

  const apply = async (cause: FenceCause): Promise<readonly string[]> => {
    refuseShared(config, region)
    await allThere(connection, scope, region.name)
    const before = await retried(async () => await revokeAll(connection, scope, at, cause, fault))
    await fault('fence:read-only:revoked')
    const ended = await endWriters(connection, scope, at, config.policy.callTimeoutMs, fault)
    await fault('fence:read-only:barrier')
    await markApplied(connection, at)
    await fault('fence:read-only:applied')
    const held = await recordedPrivileges(connection, at)
    return [
      ...heldLines(held),
      ended === 0 ? 'no session had to be ended' : `${ended} session${ended === 1 ? '' : 's'} with an open write ended`,
      'nobody who wrote before is left',
      ...alreadyStood(before, cause),
    ]
  }

  const lift = async (asked: number | null): Promise<readonly string[]> => {
    const { lines, missing } = await retried(
      async () =>
        await inTransaction(connection, async () => {
          const standing = await openRecord(connection, at)
          if (standing === null) return { lines: ['it does not stand: nothing was changed'], missing: [] }
          requireSameWish(at, standing, asked)
          const before = await recordedPrivileges(connection, at)
          const plan = givingBack(before)
          refuseUnreachable(
            before.filter(r => r.gone === null && !r.standing && !r.reachable).map(r => privilegeText(r.privilege)),
            at,
            'lifted',
          )
          await runPrivileges(connection, plan)
          await fault('fence:read-only:granted')
          const after = await recordedPrivileges(connection, at)
          await forget(connection, at)
          await fault('fence:read-only:forgotten')
          return { lines: liftedLines(before, after), missing: notGivenBack(before, after).filter(r => !r.moot) }
        }),
    )
    await fault('fence:read-only:lifted')
    if (missing.length > 0) throw notWhole(at, lines, missing)
    return lines
  }

  const planApply = async (): Promise<readonly FenceStep[]> => {
    refuseShared(config, region)
    await allThere(connection, scope, region.name)
    const { revoked, standIns } = revocation(await grantedWrites(connection, scope))
    const holders = await tableHolders(connection, scope, [...new Set(revoked.map(r => r.privilege.grantee))])
    return [
      ...revoked
        .filter(r => !r.reachable)
        .map(r =>
          step(place, `-- ${privilegeText(r.privilege)}`, 'REFUSED: this login cannot act as its grantor, so it could not bring it back.'),
        ),
      ...revokes(revoked.map(r => r.privilege)).map(s =>
        step(place, statementText(s), 'Recorded with its grantor in the same transaction.'),
      ),
      ...grants(standIns).map(s =>
        step(place, statementText(s), 'Copies and publication go on: it had this from a grantor that is fenced. Goes away with the fence.'),
      ),
      ...holders
        .filter(h => h.fenced)
        .map(h =>
          step(
            place,
            `select pg_terminate_backend(${h.pid})`,
            `Unless it ends by itself: ${holderText(h)}. It could still commit what it wrote.`,
          ),
        ),
      ...holders
        .filter(h => !h.fenced)
        .map(h => step(place, `-- ${holderText(h)}`, 'Waited for, never ended or settled: the fence fails while it lasts.')),
      step(place, lockStatement(scope), 'Granted when nobody who wrote before is left; given up at once, and asked again until then.'),
    ]
  }

  const planLift = async (): Promise<readonly FenceStep[]> => {
    const recorded = await recordedPrivileges(connection, at)
    return [
      ...givingBack(recorded).map(s => step(place, statementText(s), 'As it was before the fence.')),
      ...toldOf(recorded).map(t => step(place, `-- ${t}`, 'Found by its number, or by its name alone where the number is gone.')),
      ...recorded
        .filter(r => r.kind === 'grant' && r.gone !== null)
        .map(r => step(place, `-- ${privilegeText(r.privilege)}`, `Not brought back: ${r.gone ?? ''}.`)),
    ]
  }

  const status = async (): Promise<FenceStatus> => {
    try {
      const record = await readRecord(connection, at)
      if (record === null) return { state: 'lifted', since: null, cause: null, asked: null, holds: [] }
      return { ...record, holds: heldLines(await recordedPrivileges(connection, at)) }
    } catch (error) {
      return { state: 'unknown', since: null, cause: null, asked: null, holds: [boundaryError(error, region.name).text.fact] }
    }
  }

  return {
    region: region.name,
    name: fence.name,
    kind: 'read-only',
    plan: async direction => await coded(direction === 'apply' ? planApply : planLift),
    apply: async cause => await coded(async () => await apply(cause)),
    lift: async (_, asked) => await coded(async () => await lift(asked)),
    verify: async () => await coded(async () => await proof.observe()),
    status,
    close: async () => void (await Promise.all([connection.close(), proof.close()])),
  }
}

type FenceName = { readonly region: string; readonly name: string }

function step(place: string, text: string, why: string): FenceStep {
  return { place, text, why }
}

/** One transaction: the record of every privilege, and its revocation. Whatever dies before its commit changed nothing. */
async function revokeAll(
  connection: Connection,
  scope: WriteScope,
  at: FenceName,
  cause: FenceCause,
  fault: FaultPoint,
): Promise<ReadOnlyStanding | null> {
  return await inTransaction(connection, async () => {
    const before = await openRecord(connection, at)
    await openRecord(connection, at, cause)
    // Read under the record's lock: two who apply, or one who lifts meanwhile, take turns.
    const { revoked, standIns } = revocation(await grantedWrites(connection, scope))
    refuseUnreachable(unreachable(revoked), at, 'applied')
    await remember(connection, at, [
      ...revoked.map(r => ({ item: privilegeItem(r.privilege, 'grant'), former: privilegeRecord(r.privilege, 'grant') })),
      ...standIns.map(p => ({ item: privilegeItem(p, 'stand-in'), former: privilegeRecord(p, 'stand-in') })),
    ])
    await fault('fence:read-only:recorded')
    await runPrivileges(connection, revokes(revoked.map(r => r.privilege)))
    await fault('fence:read-only:revoking')
    await runPrivileges(connection, grants(standIns))
    await fault('fence:read-only:standing-in')
    return before
  })
}

/** Until nobody who wrote before is left; returns how many sessions had to be ended for that. */
async function endWriters(connection: Connection, scope: WriteScope, at: FenceName, withinMs: number, fault: FaultPoint): Promise<number> {
  const deadline = performance.now() + withinMs
  const fenced = [...new Set((await recordedPrivileges(connection, at)).filter(r => r.kind === 'grant').map(r => r.privilege.grantee))]
  let ended = 0
  for (;;) {
    if (await barrierGranted(connection, scope)) return ended
    const holders = await tableHolders(connection, scope, fenced)
    await fault('fence:read-only:sessions')
    ended += await endSessions(
      connection,
      holders.filter(h => h.fenced),
    )
    if (performance.now() > deadline) throw stillThere(holders.filter(h => !h.fenced || h.pid === null).map(holderText), at, ended)
  }
}

function givingBack(recorded: readonly RecordedPrivilege[]): readonly PrivilegeStatement[] {
  const standIns = recorded.filter(r => r.kind === 'stand-in' && r.standing)
  // One that stands again by somebody's hand is left as it is, unless it stands in and goes away first.
  const missing = recorded.filter(r => r.kind === 'grant' && r.gone === null && (!r.standing || standIns.some(s => sameEntry(s, r))))
  return [...revokes(standIns.map(r => r.privilege)), ...grants(missing.map(r => r.privilege))]
}

function sameEntry(a: RecordedPrivilege, b: RecordedPrivilege): boolean {
  return privilegeItem(a.privilege, 'grant') === privilegeItem(b.privilege, 'grant')
}

function liftedLines(before: readonly RecordedPrivilege[], after: readonly RecordedPrivilege[]): readonly string[] {
  const given = before.filter(r => r.kind === 'grant')
  const lost = notGivenBack(before, after)
  const byHand = given.filter(r => r.standing && !before.some(s => s.kind === 'stand-in' && sameEntry(s, r)))
  return [
    `${given.length - lost.length} of ${given.length} privileges stand as before the fence`,
    ...byHand.map(r => `had been given back by hand: ${privilegeText(r.privilege)}`),
    ...toldOf(before).map(t => `NOTE ${t}`),
    ...lost.map(r => `not brought back: ${lostText(r)}`),
  ]
}

function notGivenBack(before: readonly RecordedPrivilege[], after: readonly RecordedPrivilege[]): readonly RecordedPrivilege[] {
  const standing = new Set(after.filter(r => r.kind === 'grant' && r.standing).map(r => r.item))
  return before.filter(r => r.kind === 'grant' && !standing.has(r.item))
}

function lostText(r: RecordedPrivilege): string {
  return `${privilegeText(r.privilege)}: ${r.gone ?? 'its grantor may not give it any more'}`
}

/** The fence is lifted, and no second lift could do better: the record is gone, and what is missing is named here. */
function notWhole({ region, name }: FenceName, lines: readonly string[], missing: readonly RecordedPrivilege[]): HomeregionError {
  return new HomeregionError('fence-failed', {
    fact: `${region} database: fence ${name} could not give back ${missing.map(lostText).join('; ')}`,
    state: `The fence is lifted, ${lines[0] ?? ''} (read back).`,
    next: `grant what is missing as a role that may, then: homeregion fence audit ${region}`,
  })
}

function toldOf(recorded: readonly RecordedPrivilege[]): readonly string[] {
  return [...new Set(recorded.flatMap(r => (r.kind === 'grant' && r.told !== null ? r.told.split('; ') : [])))]
}

function unreachable(revoked: readonly GrantedWrite[]): readonly string[] {
  return revoked.filter(r => !r.reachable).map(r => privilegeText(r.privilege))
}

// Somebody else's GRANT of the same moment: dependent privileges that were not there when read, or "tuple concurrently updated".
const PASSING: readonly string[] = ['2BP01', 'XX000', '40P01', '40001', '55P03']
const TRIES = 3

async function retried<T>(work: () => Promise<T>): Promise<T> {
  for (let left = TRIES; ; left -= 1) {
    try {
      return await work()
    } catch (error) {
      if (left <= 1 || !PASSING.includes(sqlstate(error) ?? '')) throw error
    }
  }
}
