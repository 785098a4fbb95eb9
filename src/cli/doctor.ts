import { isHomeregionError } from '../domain/errors.ts'
import { boundaryProblems } from '../engine/checks/regions.ts'
import type { CliContext, World } from './context.ts'
import { leaseFindings } from './doctor-leases.ts'
import { ownershipFindings } from './doctor-ownership.ts'
import { asideLines, reconcile } from './fence/tell.ts'
import type { Finding } from './finding.ts'
import { printable } from './render/error.ts'
import { mark } from './render/progress.ts'

/** Looks at everything side by side and changes nothing. Exit 3 when something is wrong, 69 when nothing answered. */
export async function doctor(context: CliContext): Promise<void> {
  const format = context.format('json')
  const { config } = await context.settings()
  const world = await context.connect()
  await reconcile(context, world)
  const places = [
    controlPlaneFindings(world),
    fenceLogFindings(world),
    leaseFindings(context, config, world),
    ...config.regions.flatMap(r => [databaseFindings(world, r.name, config.ownership.defaultHome), kafkaFindings(world, r.name)]),
  ]
  const findings = (await Promise.all(places)).flat()
  if (format === 'json') context.out.line(JSON.stringify(findings))
  else for (const f of findings) context.out.line(`${mark(context.out, f.verdict)} ${printable(`${f.place}: ${f.check}: ${f.detail}`)}`)
  const bad = findings.filter(f => f.verdict !== 'pass')
  if (bad.length === 0) return
  if (format === 'text') context.out.line(`${bad.length} of ${findings.length} need attention`)
  context.exit(findings.every(f => f.verdict === 'unknown') ? 'unreachable' : 'refused')
}

async function controlPlaneFindings(world: World): Promise<readonly Finding[]> {
  const place = 'control plane'
  return await looked(place, async () => {
    const facts = await world.controlPlane.facts()
    const durable = ['on', 'remote_write', 'remote_apply'].includes(facts.synchronousCommit)
    const broken = facts.version === null ? null : await world.controlPlane.auditBreak()
    return [
      pass(place, 'answers', `PostgreSQL ${facts.serverVersion}, schema version ${facts.version ?? 'none'}`),
      listed(place, 'schema and transition table', facts.schemaProblems, 'as this tool expects them'),
      listed(place, 'privileges', facts.privilegeProblems, 'what the operator needs, and no more'),
      listed(
        place,
        'writable',
        [...(facts.inRecovery ? ['it is in recovery (a standby)'] : []), ...(facts.readOnly ? ['it is read-only'] : [])],
        'a primary',
      ),
      listed(
        place,
        'durability',
        durable ? [] : [`synchronous_commit is ${facts.synchronousCommit}: an answered commit can be lost`],
        `synchronous_commit ${facts.synchronousCommit}`,
      ),
      listed(place, 'audit chain', broken === null ? [] : [`broken at row ${broken}`], 'unbroken'),
    ]
  })
}

/** Fences that were found lifted or left half-done; and what stands on this machine only. */
async function fenceLogFindings(world: World): Promise<readonly Finding[]> {
  const place = 'fence log'
  return await looked(place, async () => {
    const told = await world.controlPlane.fencesTold()
    const bad = told.filter(f => !['applied', 'lifted', 'rotated'].includes(f.event))
    const left = await world.fenceJournal.pending()
    const aside = await asideLines(world.fenceJournal)
    return [
      listed(
        place,
        'fences',
        bad.map(f => `${f.fence} of ${f.region}: ${f.event} by ${f.by} at ${f.at}`),
        `${told.filter(f => f.event === 'applied').length} stand as they should`,
      ),
      listed(
        place,
        'on this machine',
        [
          ...(left.length === 0 ? [] : [`${left.length} entries that the control plane does not have: ${world.fenceJournal.file}`]),
          ...aside,
        ],
        'nothing that the control plane does not have',
      ),
    ]
  })
}

async function databaseFindings(world: World, name: string, defaultHome: string | null): Promise<readonly Finding[]> {
  const place = `${name} database`
  return await looked(place, async () => {
    const database = world.region(name)
    const facts = await database.facts()
    const installed = facts.region === name
    const audit = installed ? (await database.auditWriters()).filter(f => f.around.includes('boundary')) : []
    return [
      pass(place, 'answers', `PostgreSQL ${facts.serverVersion}`),
      listed(place, 'boundary', boundaryProblems(name, facts), 'complete, enabled, unchanged'),
      listed(
        place,
        'writable',
        [...(facts.inRecovery ? ['it is in recovery (a standby)'] : []), ...(facts.readOnly ? ['it is read-only'] : [])],
        'a primary',
      ),
      ...(installed
        ? [
            listed(
              place,
              'ways around the boundary',
              audit.filter(f => !f.accepted).map(f => `${f.subject}: ${f.why}${f.closes === null ? '' : ` (closes it: ${f.closes})`}`),
              audit.length === 0 ? 'none' : `none but ${audit.length} accepted in the configuration`,
            ),
            ...(await ownershipFindings(world, name, defaultHome)),
          ]
        : []),
    ]
  })
}

async function kafkaFindings(world: World, name: string): Promise<readonly Finding[]> {
  const place = `${name} Kafka`
  return await looked(place, async () => {
    const brokers = await world.stream(name).brokers()
    return [pass(place, 'answers', `${brokers.length} broker(s)`)]
  })
}

async function looked(place: string, look: () => Promise<readonly Finding[]>): Promise<readonly Finding[]> {
  try {
    return await look()
  } catch (error) {
    const detail = isHomeregionError(error) ? error.text.fact : error instanceof Error ? error.message : String(error)
    return [{ place, check: 'answers', verdict: 'unknown', detail }]
  }
}

function pass(place: string, check: string, detail: string): Finding {
  return { place, check, verdict: 'pass', detail }
}

function listed(place: string, check: string, problems: readonly string[], good: string): Finding {
  return problems.length === 0 ? pass(place, check, good) : { place, check, verdict: 'fail', detail: problems.join('; ') }
}
