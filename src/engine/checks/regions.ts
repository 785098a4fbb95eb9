import { SQLSTATE } from '../../domain/boundary.ts'
import { fail, type Observation, pass, unknown } from '../../domain/evidence.ts'
import type { RegionFacts } from '../../domain/ports.ts'
import { closedBecause } from '../closed-region.ts'
import type { CheckHandler, CheckSubject, Engine } from '../context.ts'
import { hiddenWriters, lookAtPaths } from './paths.ts'
import { openPaths } from './paths-open.ts'

/** Source regions of the run, then its targets: each once. */
export function regionsOf(subject: CheckSubject): readonly string[] {
  return [...new Set([...sourcesOf(subject), ...targetsOf(subject)])]
}

export function sourcesOf(subject: CheckSubject): readonly string[] {
  return [...new Set(subject.moves.map(m => m.source))]
}

export function targetsOf(subject: CheckSubject): readonly string[] {
  return [...new Set(subject.moves.map(m => m.target))]
}

export const regionsReachable: CheckHandler = async (engine, subject) => {
  const regions = regionsOf(subject)
  const required = 'every database and every Kafka answers'
  const asked = regions.flatMap(name => [
    {
      what: `${name} database`,
      answer: engine
        .region(name)
        .facts()
        .then(f => `PostgreSQL ${f.serverVersion}`),
    },
    {
      what: `${name} Kafka`,
      answer: engine
        .stream(name)
        .brokers()
        .then(ids => (ids.length === 0 ? Promise.reject(new Error('no broker answered')) : `${ids.length} broker(s)`)),
    },
  ])
  const answers = await Promise.allSettled(asked.map(a => a.answer))
  const silent = answers.flatMap((a, i) => (a.status === 'rejected' ? [`${asked[i]?.what ?? ''}: ${reason(a.reason)}`] : []))
  if (silent.length > 0) return fail('this host', required, silent.join('; '), { silent })
  return pass('this host', required, answers.map((a, i) => `${asked[i]?.what ?? ''} ${a.status === 'fulfilled' ? a.value : ''}`).join(', '))
}

export const boundaryInstalled: CheckHandler = async (engine, subject) => {
  const required = 'the guard stands on every guarded table of both regions'
  const found = await factsOf(engine, regionsOf(subject))
  const problems = found.flatMap(({ name, facts }) => boundaryProblems(name, facts))
  if (problems.length === 0) return pass('catalogues of both regions', required, 'complete, enabled, unchanged')
  const observed = found.flatMap(({ name, facts }) =>
    boundaryProblems(name, { ...facts, guardProblems: [] }).concat(facts.region === name ? differences(name, facts.guardProblems) : []),
  )
  return fail('catalogues of both regions', required, observed.join('; '), { problems })
}

/** Other parts of the boundary that are not as configured are one story once there are many: all are in `doctor`, and one command mends them. */
const TOLD_APART = 3

function differences(name: string, problems: readonly string[]): readonly string[] {
  if (problems.length <= TOLD_APART) return problems.map(p => `${name}: ${p} (closes it: homeregion init)`)
  return [`${name}: the boundary differs from the configuration in ${problems.length} places (closes it: homeregion init)`]
}

export function boundaryProblems(name: string, facts: RegionFacts): readonly string[] {
  if (facts.region === null) {
    const unseen = facts.missingPrivileges.filter(p => p.startsWith('SELECT on homeregion.'))
    if (unseen.length === 0) return [`${name}: the boundary is not installed (homeregion init)`]
    return [`${name}: the operator's login cannot see the boundary, it lacks ${unseen.join(', ')} (homeregion init grants it)`]
  }
  if (facts.region !== name) return [`${name}: this database's boundary belongs to ${facts.region}`]
  return [...facts.guardProblems, ...facts.missingPrivileges].map(p => `${name}: ${p}`)
}

/**
 * The target must be a primary that admits writes of its writers, apart from the guard, which must still refuse them.
 * Probes with the real logins find the disk that is full and the secret that is wrong before the drain, not after activation.
 */
export const targetCanWrite: CheckHandler = async (engine, subject) => {
  const problems: string[] = []
  const unseen: string[] = []
  for (const { name, facts } of await factsOf(engine, targetsOf(subject))) {
    if (facts.inRecovery) problems.push(`${name} is in recovery (a standby)`)
    if (facts.readOnly) problems.push(`${name} is read-only (default_transaction_read_only)`)
    // The key would arrive where nobody may write: told now, before its write stop begins.
    problems.push(...closedBecause(name, facts))
    if (facts.inRecovery || facts.readOnly) continue
    const key = subject.moves.find(m => m.target === name)?.key ?? ''
    for (const probe of await engine.region(name).probeWrites(key, null, 'read committed')) {
      if (probe.outcome === 'unknown') unseen.push(`${probe.writer} on ${probe.table}: ${probe.message}`)
      else if (probe.outcome === 'admitted')
        problems.push(`${name} admits a write of ${probe.writer} to ${probe.table} for a key whose home is elsewhere`)
      else if (probe.outcome === 'refused' && !(probe.sqlstate ?? '').startsWith('HR'))
        problems.push(`${probe.writer} cannot write ${probe.table} in ${name}: ${probe.message}`)
    }
  }
  const required = 'a primary, not read-only, whose writers are held back by the guard alone'
  if (problems.length > 0) return fail('target database', required, problems.join('; '), { problems })
  if (unseen.length > 0) return unknown('target database', required, unseen.join('; '))
  return pass('target database', required, 'primary, writable, writers log in and are held back by the guard alone')
}

/**
 * Nobody in the source can write around the fence; the probe that will prove the fence is admitted now, on every path, so that a later refusal
 * means something; and no standby would be missed by it.
 */
export const fenceCoversWriters: CheckHandler = async (engine, subject): Promise<Observation> => {
  const required = 'no role or path writes around the boundary, and probes as the writers are admitted'
  const problems: string[] = []
  const unseen: string[] = []
  for (const name of sourcesOf(subject)) {
    const move = subject.moves.find(m => m.source === name)
    if (move === undefined) continue
    const [row, findings, probes, paths, conditions] = await Promise.all([
      engine.region(name).read(move.key),
      engine.region(name).auditWriters(),
      engine.region(name).probeWrites(move.key, move.epoch, 'read committed'),
      lookAtPaths(engine, subject, name, move),
      engine.region(name).conditions(),
    ])
    // Of a key that was begun to be moved its own row says enough.
    const closed = row?.writable === true ? closedBecause(name, conditions) : []
    problems.push(...closed)
    const ways = await openPaths(engine, subject, move, paths, row)
    problems.push(...ways.problems.map(p => `${name}: ${p}`), ...hiddenWriters(probes).map(p => `${name}: its database's address ${p}`))
    unseen.push(...[...ways.unseen, ...ways.behind].map(p => `${name}: ${p}`))
    // A key is fenced by the boundary: what gets around other fences alone does not stand in its way.
    const around = findings.filter(f => !f.accepted && f.around.includes('boundary'))
    const guard = around.filter(f => f.kind === 'guard')
    problems.push(
      ...differences(
        name,
        guard.map(f => f.why),
      ),
      ...around
        .filter(f => f.kind !== 'guard')
        .map(f => `${name}: ${f.subject}: ${f.why}${f.closes === null ? '' : ` (closes it: ${f.closes})`}`),
    )
    if (probes.length === 0) problems.push(`${name}: no writer is declared, so a fence there cannot be proved`)
    for (const probe of probes) {
      if (probe.outcome === 'unknown') unseen.push(`${probe.writer} on ${probe.table}: ${probe.message}`)
      // Closed for every key and writer: said once, by what closes it.
      if (probe.outcome === 'refused' && CLOSED.some(code => code === probe.sqlstate) && closed.length > 0) continue
      // A key whose drain was already begun (resume) refuses its own writers; only a refusal by something else makes the probe useless.
      if (probe.outcome === 'refused' && row?.writable === true)
        problems.push(
          `${name} admits the key, but the probe as ${probe.writer} on ${probe.table} is refused: does its login lead to this database? (${probe.message})`,
        )
      else if (probe.outcome === 'refused' && !(probe.sqlstate ?? '').startsWith('HR'))
        problems.push(`the probe as ${probe.writer} on ${probe.table} is refused before any fence: ${probe.message}`)
    }
  }
  const observer = 'catalogue and writers of the source'
  if (problems.length > 0) return fail(observer, required, problems.join('; '), { problems })
  if (unseen.length > 0) return unknown(observer, required, unseen.join('; '))
  return pass(observer, required, 'no way around; every writer probed')
}

/** The lease is over, or the whole region is fenced. */
const CLOSED = [SQLSTATE.leaseOver, SQLSTATE.regionFenced]

async function factsOf(engine: Engine, names: readonly string[]): Promise<readonly { name: string; facts: RegionFacts }[]> {
  return await Promise.all(names.map(async name => ({ name, facts: await engine.region(name).facts() })))
}

function reason(error: unknown): string {
  return error instanceof Error ? error.message : String(error)
}
