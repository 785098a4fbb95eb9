/** The environment variables and flags that go before the file: flags > environment > file. `homeregion help environment` prints this table. */
export type Override = {
  readonly name: string
  readonly sets: string
  /** Place in the configuration file's own shape; null for what only finds the file or steers the command line. */
  readonly path: readonly string[] | null
}

export const ENVIRONMENT = [
  { name: 'HOMEREGION_CONFIG', sets: 'the configuration file', path: null },
  { name: 'HOMEREGION_CONTROL_PLANE_URL', sets: 'controlPlane.url', path: ['controlPlane', 'url'] },
  { name: 'HOMEREGION_CALL_TIMEOUT', sets: 'policy.callTimeout', path: ['policy', 'callTimeout'] },
  { name: 'HOMEREGION_EVIDENCE_MAX_AGE', sets: 'policy.evidenceMaxAge', path: ['policy', 'evidenceMaxAge'] },
  { name: 'HOMEREGION_RUN_LEASE', sets: 'policy.runLease', path: ['policy', 'runLease'] },
  { name: 'HOMEREGION_MAX_KEYS', sets: 'policy.maxKeys', path: ['policy', 'maxKeys'] },
  { name: 'HOMEREGION_STATE_DIR', sets: 'fence log of this machine (else XDG_STATE_HOME)', path: null },
  { name: 'HOMEREGION_SANDBOX', sets: 'folder of the sandbox', path: null },
  { name: 'HOMEREGION_CACHE', sets: 'folder of what the sandbox fetched', path: null },
  { name: 'HOMEREGION_DEBUG', sets: 'stack traces with errors (any value)', path: null },
  { name: 'NO_COLOR', sets: 'no colour (any value)', path: null },
  { name: 'FORCE_COLOR', sets: 'colour off a terminal (0: none)', path: null },
] as const satisfies readonly Override[]

/** Where one value of the effective configuration came from. */
export type Origin =
  | { readonly from: 'file'; readonly file: string; readonly line: number }
  | { readonly from: 'environment'; readonly name: string }
  | { readonly from: 'flag'; readonly name: string }
  | { readonly from: 'default' }

export type AppliedOverride = { readonly path: readonly string[]; readonly value: string | number; readonly origin: Origin }

/** The overrides that are given, weakest first, so that applying them in order lets the flag win. An empty variable counts as not set. */
export function givenOverrides(
  env: Readonly<Record<string, string | undefined>>,
  flags: { readonly controlPlane?: string },
): readonly AppliedOverride[] {
  const fromEnvironment = ENVIRONMENT.flatMap((variable): AppliedOverride[] => {
    const value = env[variable.name]
    if (variable.path === null || value === undefined || value === '') return []
    // A count is a number in the file; whatever else the text is, the schema judges it.
    const typed = variable.name === 'HOMEREGION_MAX_KEYS' && /^\d{1,9}$/.test(value) ? Number(value) : value
    return [{ path: variable.path, value: typed, origin: { from: 'environment', name: variable.name } }]
  })
  if (flags.controlPlane === undefined) return fromEnvironment
  return [
    ...fromEnvironment,
    { path: ['controlPlane', 'url'], value: flags.controlPlane, origin: { from: 'flag', name: '--control-plane' } },
  ]
}

export function withOverrides(value: unknown, overrides: readonly AppliedOverride[]): unknown {
  return overrides.reduce((at, { path, value: given }) => put(at, path, given), value)
}

function put(value: unknown, path: readonly string[], given: unknown): unknown {
  const [head, ...rest] = path
  if (head === undefined) return given
  // A file whose section is not a mapping is refused by the schema; it must not be papered over here.
  if (value !== undefined && value !== null && (typeof value !== 'object' || Array.isArray(value))) return value
  const section = (value ?? {}) as Record<string, unknown>
  return { ...section, [head]: put(section[head], rest, given) }
}
