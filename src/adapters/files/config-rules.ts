import { suggestion } from '../../domain/did-you-mean.ts'
import { parseDuration } from '../../domain/duration.ts'
import { BOUNDARY_FENCE } from '../../domain/fence.ts'
import { splitTable } from './config-map.ts'
import { type ConfigFile, REGION_NAME } from './config-schema.ts'
import { policyProblems } from './policy-rules.ts'
import { problemAt, type SchemaProblem } from './schema-problems.ts'

/** What a schema cannot say: rules between values, and inside a URL. */
export function configProblems(file: ConfigFile): SchemaProblem[] {
  return [...urls(file), ...regions(file), ...leases(file), ...fences(file), ...tables(file), ...policyProblems(file)]
}

type Path = readonly PropertyKey[]

function logins(file: ConfigFile): readonly { path: Path; url: string }[] {
  const one = (path: Path, login: { url: string } | undefined) => (login === undefined ? [] : [{ path: [...path, 'url'], url: login.url }])
  return [
    ...one(['controlPlane'], file.controlPlane),
    ...one(['controlPlane', 'admin'], file.controlPlane.admin),
    ...Object.entries(file.regions).flatMap(([name, { database }]) => [
      ...one(['regions', name, 'database', 'operator'], database.operator),
      ...one(['regions', name, 'database', 'admin'], database.admin),
      ...one(['regions', name, 'database', 'fencer'], database.fencer),
      ...database.writers.flatMap((writer, i) => one(['regions', name, 'database', 'writers', i], writer)),
    ]),
  ]
}

function urls(file: ConfigFile): SchemaProblem[] {
  return logins(file).flatMap(({ path, url }) => {
    const found = urlProblem(url)
    return found === null ? [] : [problemAt(path, found.message, found.hint)]
  })
}

function urlProblem(text: string): { message: string; hint: string | null } | null {
  const shape = 'postgres://user@host:port/database'
  const url = parseUrl(text)
  if (url === null) return { message: 'is not a URL', hint: shape }
  if (url.protocol !== 'postgres:' && url.protocol !== 'postgresql:') return { message: 'is not a postgres:// URL', hint: shape }
  if (url.password !== '' || [...url.searchParams.keys()].some(name => /password/i.test(name)))
    return {
      message: 'a password may not stand in a URL',
      hint: 'take it out and give password: { env: NAME }, { file: PATH } or { command: [...] }',
    }
  if (url.username === '') return { message: 'names no user', hint: shape }
  if (url.hostname === '') return { message: 'names no host', hint: shape }
  if (url.pathname.length < 2) return { message: 'names no database', hint: shape }
  return null
}

function parseUrl(text: string): URL | null {
  return URL.canParse(text) ? new URL(text) : null
}

/** Reported beside what the schema finds: they need nothing but the names. */
export function regionNameProblems(value: unknown): SchemaProblem[] {
  const regions = (value as { regions?: unknown } | null | undefined)?.regions
  if (typeof regions !== 'object' || regions === null || Array.isArray(regions)) return []
  const names = Object.keys(regions)
  const few = names.length < 2 ? [problemAt(['regions'], `there must be at least two regions, there is ${names.length}`, null, 'key')] : []
  const wrong = names.filter(name => !REGION_NAME.test(name))
  return [
    ...few,
    ...wrong.map(name => problemAt(['regions', name], 'is no region name', 'lower-case letters, digits and -; a letter first', 'key')),
  ]
}

function regions(file: ConfigFile): SchemaProblem[] {
  const names = Object.keys(file.regions)
  const { defaultHome } = file.ownership
  const problems =
    defaultHome === null || names.includes(defaultHome)
      ? []
      : [problemAt(['ownership', 'defaultHome'], `${JSON.stringify(defaultHome)} is not a region`, suggestion(defaultHome, names))]
  return [...problems, ...(file.topology === 'shared' ? [...sharedDefaultHome(file), ...sharedWriters(file)] : sameDatabase(file))]
}

/** The record and the boundary are one there: a key exists when it is registered. */
function sharedDefaultHome(file: ConfigFile): SchemaProblem[] {
  if (file.ownership.defaultHome === null) return []
  return [problemAt(['ownership', 'defaultHome'], 'topology: shared knows no default home', 'register the keys: homeregion key import')]
}

/** The region of a session in a shared database is that of its login, so no login may write for two. */
function sharedWriters(file: ConfigFile): SchemaProblem[] {
  const owners = new Map<string, string>()
  return Object.entries(file.regions).flatMap(([name, region]) =>
    region.database.writers.flatMap((writer, i) => {
      const url = parseUrl(writer.url)
      const login = url === null ? '' : decodeURIComponent(url.username)
      const path = ['regions', name, 'database', 'writers', i]
      if (writer.role !== undefined && writer.role !== login)
        return [problemAt([...path, 'role'], 'is not the user of its url, by which a shared database tells the region of a session')]
      const owner = owners.get(login) ?? name
      owners.set(login, owner)
      if (owner === name) return []
      return [
        problemAt(
          [...path, 'url'],
          `${JSON.stringify(login)} writes for ${owner} already`,
          'topology: shared needs writers of its own in each region',
        ),
      ]
    }),
  )
}

/** Two regions on one database would fence themselves out of it; it is what a copied block looks like. */
function sameDatabase(file: ConfigFile): SchemaProblem[] {
  const seen = new Map<string, string>()
  return Object.entries(file.regions).flatMap(([name, region]) => {
    const url = parseUrl(region.database.operator.url)
    const id = url === null ? name : `${url.hostname}:${url.port === '' ? '5432' : url.port}${url.pathname}`
    const other = seen.get(id)
    seen.set(id, name)
    if (other === undefined) return []
    return [
      problemAt(
        ['regions', name, 'database', 'operator', 'url'],
        `is the database of ${other} as well`,
        'topology: shared, if there is one database for all',
      ),
    ]
  })
}

/** A lease shorter than its margin is over before it begins. */
function leases(file: ConfigFile): SchemaProblem[] {
  return Object.entries(file.regions).flatMap(([name, { lease }]) =>
    lease === undefined || (parseDuration(lease.duration) ?? 0) > (parseDuration(lease.margin) ?? 0)
      ? []
      : [problemAt(['regions', name, 'lease', 'duration'], 'must be longer than the margin')],
  )
}

/** A fence is named in commands, runbooks and records, and a role whose secret is rotated has to be one that writes. */
function fences(file: ConfigFile): SchemaProblem[] {
  return Object.entries(file.regions).flatMap(([name, region]) => {
    const seen = new Set<string>([BOUNDARY_FENCE])
    const writers = region.database.writers.map(w => w.role ?? decodeURIComponent(parseUrl(w.url)?.username ?? ''))
    return region.fences.flatMap((fence, i) => {
      const path = ['regions', name, 'fences', i]
      const twice = seen.has(fence.name) ? [problemAt([...path, 'name'], `${JSON.stringify(fence.name)} is taken in ${name} already`)] : []
      seen.add(fence.name)
      if (fence.kind !== 'credentials') return twice
      const strangers = fence.roles.flatMap(({ role }, at) =>
        writers.includes(role)
          ? []
          : [
              problemAt(
                [...path, 'roles', at, 'role'],
                `${JSON.stringify(role)} is no declared writer of ${name}`,
                suggestion(role, writers) ?? 'declare it below database.writers: its refused login is the proof',
              ),
            ],
      )
      const pair = fence.roles.map(r => r.role).filter((role, at, all) => all.indexOf(role) !== at)
      return [...twice, ...strangers, ...pair.map(role => problemAt([...path, 'roles'], `${JSON.stringify(role)} is listed twice`))]
    })
  })
}

function tables(file: ConfigFile): SchemaProblem[] {
  const seen = new Set<string>()
  return file.tables.flatMap(({ table }, i) => {
    const id = JSON.stringify(splitTable(table))
    if (!seen.has(id)) {
      seen.add(id)
      return []
    }
    return [problemAt(['tables', i, 'table'], 'this table is listed already')]
  })
}
