import type { EndpointProbe, ProbeResult } from '../../domain/boundary.ts'
import type { Config, DatabaseLogin, Endpoint, RegionConfig } from '../../domain/config.ts'
import { HomeregionError, isHomeregionError } from '../../domain/errors.ts'
import { type Connection, createConnection, errorText, type Row, type Secrets } from '../postgres/connection.ts'
import { guards } from './guards.ts'
import { boundaryRow } from './region-operations.ts'
import { ALL_REGIONS } from './topology.ts'
import { probeAs } from './write-probe.ts'

export type EndpointProbes = {
  /** Opens the sessions before time matters. Failures show in the probes. */
  warm(): Promise<void>
  probe(key: string, epoch: number | null): Promise<readonly EndpointProbe[]>
  close(): Promise<void>
}

type Opened = {
  readonly endpoint: Endpoint
  readonly writers: readonly { readonly role: string; readonly connection: Connection }[]
  /** Reads what the endpoint shows: the operator at a standby, a writer through a pooler, which need not know the operator. */
  readonly eyes: Connection | null
}

/** Real writes through every declared endpoint, beside each other; each always rolled back. */
export function createEndpointProbes(region: RegionConfig, config: Config, secrets: Secrets): EndpointProbes {
  const all = region.database.endpoints.map((endpoint): Opened => {
    const session = (login: DatabaseLogin, who: string) =>
      createConnection({
        login: loginAt(login, endpoint),
        secrets,
        name: `${region.name} endpoint ${endpoint.name} as ${who}`,
        applicationName: 'homeregion probe',
        callTimeoutMs: config.policy.callTimeoutMs,
        unreachable: 'region-unreachable',
        // A pooler refuses a client that sets what it does not know at its start.
        bare: endpoint.kind === 'pooler',
      })
    const writers = region.database.writers.map(w => ({ role: w.role, connection: session(w, w.role) }))
    const eyes = endpoint.kind === 'standby' ? session(region.database.operator, 'operator') : (writers[0]?.connection ?? null)
    return { endpoint, writers, eyes }
  })
  const connections = [...new Set(all.flatMap(o => [...o.writers.map(w => w.connection), ...(o.eyes === null ? [] : [o.eyes])]))]
  const tables = guards(config)
  return {
    warm: async () => {
      await Promise.allSettled(connections.map(async c => await c.warm()))
    },
    probe: async (key, epoch) =>
      await Promise.all(
        all.map(async ({ endpoint, writers, eyes }): Promise<EndpointProbe> => {
          const [sight, ...probes] = await Promise.all([
            look(eyes, endpoint, region.name, key),
            ...writers.map(async w => await probeAs(w.role, w.connection, tables, key, epoch, 'read committed')),
          ])
          return { endpoint: endpoint.name, kind: endpoint.kind, ...sight, probes: probes.flat() satisfies readonly ProbeResult[] }
        }),
      ),
    close: async () => {
      await Promise.all(connections.map(async c => await c.close()))
    },
  }
}

/**
 * The same login at the endpoint's address.
 * @throws `config-invalid` for an address that a URL cannot hold: the probe would go to the primary unseen
 */
export function loginAt(login: DatabaseLogin, endpoint: Pick<Endpoint, 'name' | 'host' | 'port' | 'database'>): DatabaseLogin {
  const url = new URL(login.url)
  // These of a URL's query would win over its address.
  for (const name of ['host', 'hostaddr', 'port', 'dbname', 'database']) url.searchParams.delete(name)
  const host = endpoint.host.includes(':') && !endpoint.host.startsWith('[') ? `[${endpoint.host}]` : endpoint.host
  url.hostname = host
  url.port = String(endpoint.port)
  if (endpoint.database !== null) url.pathname = `/${encodeURIComponent(endpoint.database)}`
  if (url.hostname.toLowerCase() === host.toLowerCase() && url.port === String(endpoint.port)) return { ...login, url: url.toString() }
  throw new HomeregionError('config-invalid', {
    fact: `endpoint ${endpoint.name}: ${JSON.stringify(endpoint.host)} is no host name or address`,
    state: 'Nothing was changed.',
    next: 'homeregion config show',
  })
}

type Sight = Pick<EndpointProbe, 'unseen' | 'inRecovery' | 'region' | 'row' | 'fences'>

// One statement: whether it is a standby, and what it shows, are of one moment. A writer may not read what is installed, and asks for its own region.
const AT_STANDBY = `select pg_is_in_recovery() as in_recovery, (select i.region from homeregion.installed i) as region,
    (select coalesce(jsonb_object_agg(f.name, f.since::text), '{}') from homeregion.fence f where f.region = $2 and f.state = 'applied') as fences, r.*
  from (values (1)) one left join homeregion.read($1) r on true`
const THROUGH_POOLER = `select pg_is_in_recovery() as in_recovery, homeregion.local_region() as region, null as fences, r.*
  from (values (1)) one left join homeregion.read($1) r on true`

async function look(eyes: Connection | null, endpoint: Endpoint, region: string, key: string): Promise<Sight> {
  const nothing = { inRecovery: null, region: null, row: null, fences: null }
  if (eyes === null) return { ...nothing, unseen: 'no writer is declared: nobody can look through it' }
  try {
    await eyes.warm()
    const standby = endpoint.kind === 'standby'
    const { rows } = await eyes.query('read', standby ? AT_STANDBY : THROUGH_POOLER, standby ? [key, region] : [key])
    return seen(rows[0] ?? {}, region)
  } catch (error) {
    return { ...nothing, unseen: isHomeregionError(error) ? error.text.fact : errorText(error) }
  }
}

function seen(row: Row, region: string): Sight {
  const shown = typeof row.region === 'string' ? row.region : null
  return {
    unseen: null,
    inRecovery: row.in_recovery === true,
    region: shown === ALL_REGIONS ? region : shown,
    fences: row.fences === null ? null : (row.fences as Readonly<Record<string, string>>),
    row: row.key === null || row.key === undefined ? null : boundaryRow(row, region),
  }
}
