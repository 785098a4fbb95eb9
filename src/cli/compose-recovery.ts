import { createReapply } from '../adapters/hooks/reapply-command.ts'
import { createRecovery } from '../adapters/postgres-region/recovery/recovery.ts'
import { createFaultPoint } from '../adapters/system/fault-point.ts'
import type { Config } from '../domain/config.ts'
import type { FaultPoint } from '../domain/ports.ts'
import type { Reapply, Recovery } from '../domain/recovery.ts'
import { composeSecrets } from './compose-children.ts'

/** What the way back needs beside the world that every verb has: sessions that compare and replace rows of the service. */
export function composeRecovery(
  config: Config,
  env: Readonly<Record<string, string | undefined>>,
): { readonly recovery: Recovery; readonly fault: FaultPoint; readonly reapply: Reapply | null } {
  return {
    reapply: createReapply(config.reapply, env),
    recovery: createRecovery(config, composeSecrets(config, env)),
    fault: createFaultPoint(env['HOMEREGION_FAULT']),
  }
}
