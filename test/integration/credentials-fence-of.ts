import { createCredentialsFence } from '../../src/adapters/postgres-region/fences/credentials.ts'
import { createSink, SINK_TIMEOUT_MS } from '../../src/adapters/sinks/sink.ts'
import { createSecrets } from '../../src/adapters/system/secrets.ts'
import type { Config, RegionConfig, SecretSink } from '../../src/domain/config.ts'
import type { Fence, FenceCause } from '../../src/domain/fence.ts'
import type { FaultPoint } from '../../src/domain/ports.ts'
import type { Sink } from '../../src/domain/sink.ts'

export const CAUSE: FenceCause = { reason: 'a test', by: 'tester', runId: null }

type SinkOf = (sink: SecretSink) => Sink

export function fenceOf(region: RegionConfig, config: Config, env: NodeJS.ProcessEnv, fault: FaultPoint, sinks?: SinkOf): Fence {
  const [fence] = region.fences
  if (fence?.kind !== 'credentials') throw new Error('the region has no credentials fence')
  const secrets = createSecrets(env)
  const sinkOf = sinks ?? ((sink: SecretSink) => createSink(sink, { secrets, env, timeoutMs: SINK_TIMEOUT_MS }))
  return createCredentialsFence(region, fence, config, secrets, sinkOf, fault)
}
