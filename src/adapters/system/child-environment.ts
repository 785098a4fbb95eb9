import type { Config } from '../../domain/config.ts'

type Env = Readonly<Record<string, string | undefined>>

/** What programs that this process starts are given of its environment. */
export type ChildEnvironments = {
  /** Without anything that the configuration names as a secret: hooks, fences, alarms. */
  readonly bare: Env
  /** For programs that read or take secrets: the token of a secret store is what such a store's own client needs. */
  readonly secretStores: Env
}

/** A variable that holds a secret of ours is ours: a program that is started has not asked for it, and anybody may read its environment. */
export function childEnvironments(env: Env, config: Config): ChildEnvironments {
  const named = new Set(variablesIn(config))
  const tokens = new Set(config.regions.flatMap(r => r.fences).flatMap(storeTokens))
  const without = (dropped: (name: string) => boolean): Env => Object.fromEntries(Object.entries(env).filter(([name]) => !dropped(name)))
  return { bare: without(name => named.has(name)), secretStores: without(name => named.has(name) && !tokens.has(name)) }
}

/** Every `{env: NAME}`, wherever a secret may stand. */
function variablesIn(value: unknown): readonly string[] {
  if (typeof value !== 'object' || value === null) return []
  const entries = Object.entries(value)
  const [only] = entries
  if (only !== undefined && entries.length === 1 && only[0] === 'env' && typeof only[1] === 'string') return [only[1]]
  return entries.flatMap(([, inner]) => variablesIn(inner))
}

function storeTokens(fence: Config['regions'][number]['fences'][number]): readonly string[] {
  if (fence.kind !== 'credentials') return []
  return fence.roles.flatMap(({ sink }) => ('vault' in sink ? variablesIn(sink.vault.token) : []))
}
