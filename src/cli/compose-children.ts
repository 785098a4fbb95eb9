import { createHooks } from '../adapters/hooks/command-hooks.ts'
import { childEnvironments } from '../adapters/system/child-environment.ts'
import { createSecrets, SECRET_LIMITS, type Secrets } from '../adapters/system/secrets.ts'
import type { Config } from '../domain/config.ts'
import type { Hooks } from '../domain/ports.ts'

type Env = Readonly<Record<string, string | undefined>>

/** Secrets of this configuration: the commands that print some get none of the others. */
export function composeSecrets(config: Config, env: Env): Secrets {
  return createSecrets(env, SECRET_LIMITS, childEnvironments(env, config).secretStores)
}

/** Commands of runbooks, fences and alarms: they get no secret of this configuration. */
export function composeHooks(config: Config, env: Env): Hooks {
  return createHooks(childEnvironments(env, config).bare)
}
