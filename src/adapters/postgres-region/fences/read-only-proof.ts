import type { Config, RegionConfig } from '../../../domain/config.ts'
import { fail, type Observation, pass, unknown } from '../../../domain/evidence.ts'
import type { Connection } from '../../postgres/connection.ts'
import { renderBoundary } from '../boundary-sql.ts'
import { guards } from '../guards.ts'
import { loginRole, plainName, relation } from '../quoting.ts'
import { sqlText } from '../sql-file.ts'
import { fencerOf } from '../topology.ts'
import { auditWriters } from '../writer-audit.ts'
import { grantedWrites, scopeParameters, type WriteScope } from './granted-writes.ts'
import { createPrivilegeProbes, type ProbedTable } from './privilege-probe.ts'
import { privilegeText } from './privileges.ts'
import { readRecord, recordedPrivileges } from './read-only-record.ts'
import { barrierGranted, holderText, tableHolders } from './write-barrier.ts'

type FenceName = { readonly region: string; readonly name: string }

export type ReadOnlyProof = { observe(): Promise<readonly Observation[]>; close(): Promise<void> }

/** What the catalogue says, what the writers' own logins meet, and that nobody who wrote before is left. Changes nothing. */
export function createReadOnlyProof(
  region: RegionConfig,
  config: Config,
  secrets: Parameters<typeof createPrivilegeProbes>[2],
  connection: Connection,
  scope: WriteScope,
  at: FenceName,
): ReadOnlyProof {
  const observer = `${region.name} database`
  const probes = createPrivilegeProbes(region, config, secrets, connection)
  return {
    observe: async () => {
      const record = await readRecord(connection, at)
      if (record === null) return [fail(observer, `fence ${at.name} stands`, 'it is lifted')]
      const held = await recordedPrivileges(connection, at)
      const tables = guards(config).map((g): ProbedTable => {
        const name = relation(g)
        const columns = (privilege: string) =>
          held.flatMap(({ privilege: p }) => (p.relation === name && p.privilege === privilege && p.column !== null ? [p.column] : []))
        const spared = name === scope.outbox ? scope.publishedAt : null
        return {
          name,
          plain: plainName(g),
          insertColumns: [...new Set([g.key, ...columns('INSERT')])],
          updateColumns: [...new Set([g.key, ...columns('UPDATE')])].filter(c => c !== spared),
        }
      })
      return [
        record.state === 'applied'
          ? pass(observer, `fence ${at.name} stands`, `applied since ${record.since ?? '?'}`)
          : fail(observer, `fence ${at.name} stands`, `${record.state}: it was begun and not finished`),
        await noGrants(connection, scope, observer),
        await nobodyLeft(connection, region, scope, observer),
        await noDetours(connection, config, region, observer),
        ...(await probes.observe(tables)),
        await barrierFree(connection, scope, observer),
      ]
    },
    close: async () => await probes.close(),
  }
}

async function noGrants(connection: Connection, scope: WriteScope, observer: string): Promise<Observation> {
  const found = await grantedWrites(connection, scope)
  const open = found.filter(f => f.spared === null).map(f => privilegeText(f.privilege))
  const spared = found.flatMap(f => (f.spared === null ? [] : [`${privilegeText(f.privilege)} (${f.spared})`]))
  const required = 'no role holds a granted privilege to write the guarded tables'
  const facts = { open, spared }
  const roles = [...new Set(found.flatMap(f => (f.spared === null ? [] : [`${f.privilege.grantee ?? 'PUBLIC'} (${f.spared})`])))]
  if (open.length > 0) return fail(observer, required, `${open.length} granted: ${shortened(open)}`, facts)
  return pass(
    observer,
    required,
    spared.length === 0 ? '0 granted' : `0 granted, ${spared.length} left on purpose: ${shortened(roles)}`,
    facts,
  )
}

/** Owners and superusers are beyond any privilege: they are named, and a declared writer among them is no proof. */
async function nobodyLeft(connection: Connection, region: RegionConfig, scope: WriteScope, observer: string): Promise<Observation> {
  const { rows } = await connection.query('read', sqlText('read-only-remaining.sql'), scopeParameters(scope))
  const { admin } = region.database
  const ours = [loginRole(fencerOf(region)), ...(admin === null ? [] : [loginRole(admin)])].filter(r => !scope.writers.includes(r))
  const reasons = new Map(region.acceptedWriters.map(a => [a.subject, a.reason]))
  const left: string[] = []
  const notStopped: string[] = []
  for (const row of rows) {
    const role = String(row.role)
    const through = typeof row.through === 'string' ? ` through ${row.through}` : ''
    const spared = typeof row.spared === 'string' ? row.spared : ours.includes(role) ? "homeregion's own login" : reasons.get(role)
    if (spared === undefined) left.push(`${role}${through}`)
    else notStopped.push(`${role} (${spared}${through}${row.can_login === true ? '' : ', cannot log in'})`)
  }
  const required = 'no role that can log in may write the guarded tables by membership; owners and superusers are named'
  const facts = { left: [...new Set(left)], notStopped: [...new Set(notStopped)] }
  if (left.length > 0) return fail(observer, required, `${facts.left.length} can: ${shortened(facts.left)}`, facts)
  return pass(
    observer,
    required,
    `none; not stopped by any privilege: ${facts.notStopped.length === 0 ? 'nobody' : shortened(facts.notStopped)}`,
    facts,
  )
}

/** Foreign keys and rules write the guarded tables with their owner's rights, whoever writes the table that leads there. */
const DETOURS: readonly string[] = ['cascade', 'rule']

async function noDetours(connection: Connection, config: Config, region: RegionConfig, observer: string): Promise<Observation> {
  const findings = await auditWriters(connection, config, region, renderBoundary(config, region).expected)
  const detours = findings.filter(f => DETOURS.includes(f.kind) && f.around.includes('read-only'))
  const open = detours.filter(f => !f.accepted).map(f => `${f.subject}: ${f.why}`)
  const required = 'no foreign key and no rule of an unguarded table writes a guarded one'
  if (open.length > 0) return fail(observer, required, `${open.length}: ${shortened(open)}`, { open })
  const accepted = detours.map(f => `${f.subject} (${f.kind}, accepted)`)
  return pass(observer, required, accepted.length === 0 ? 'none' : `none but ${shortened(accepted)}`)
}

// A copy or a publication under way is met more than once at most.
const TRIES = 5

async function barrierFree(connection: Connection, scope: WriteScope, observer: string): Promise<Observation> {
  const required = '0 sessions and 0 prepared transactions with an open write; the tables can be locked'
  for (let left = TRIES; left > 0; left -= 1)
    if (await barrierGranted(connection, scope)) return pass(observer, required, '0; the lock was granted, and given up at once')
  const holders = await tableHolders(connection, scope, [null])
  const prepared = holders.filter(h => h.pid === null).length
  if (holders.length === 0) return unknown(observer, required, 'the lock was not granted, and nobody was seen to hold it')
  return fail(observer, required, `${prepared} prepared, ${holders.length - prepared} sessions: ${shortened(holders.map(holderText))}`, {
    prepared,
  })
}

function shortened(all: readonly string[]): string {
  const shown = all.slice(0, 6).join('; ')
  return all.length > 6 ? `${shown}; and ${all.length - 6} more` : shown
}
