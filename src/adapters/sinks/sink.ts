import type { SecretSink } from '../../domain/config.ts'
import { HomeregionError } from '../../domain/errors.ts'
import type { Sink } from '../../domain/sink.ts'
import { remember } from '../system/redaction.ts'
import { createCommandSink } from './command.ts'
import { createFileSink } from './file.ts'
import { createKubernetesSink } from './kubernetes.ts'
import type { SinkContext } from './sink-context.ts'
import { createVaultSink } from './vault.ts'

/** An API server under load answers in seconds; nobody should stand before a fence for longer without being told why. */
export const SINK_TIMEOUT_MS = 20_000

/** A sink of the configuration. Whatever kind it is, it is done or has failed within the time-out. */
export function createSink(sink: SecretSink, context: SinkContext): Sink {
  const made = sinkOf(sink, context)
  return {
    place: made.place,
    deliver: async (secret, about) => {
      remember(secret)
      await within(context.timeoutMs, made.place, made.deliver(secret, about))
    },
    readsBack: made.readsBack,
    read: async () => {
      const secret = await within(context.timeoutMs, made.place, made.read())
      if (secret !== null) remember(secret)
      return secret
    },
  }
}

function sinkOf(sink: SecretSink, context: SinkContext): Sink {
  if ('file' in sink) return createFileSink(sink.file)
  if ('command' in sink) return createCommandSink(sink.command, context)
  if ('kubernetes' in sink) return createKubernetesSink(sink.kubernetes, context)
  return createVaultSink(sink.vault, context)
}

// A little longer than the sinks' own bounds, which can say more; a file system that hangs has none.
const GRACE_MS = 1_000

async function within<T>(timeoutMs: number, place: string, work: Promise<T>): Promise<T> {
  let timer: NodeJS.Timeout | undefined
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(
      () => reject(new HomeregionError('fence-failed', { fact: `${place} did not answer within ${timeoutMs} ms` })),
      timeoutMs + GRACE_MS,
    )
  })
  try {
    return await Promise.race([work, late])
  } finally {
    clearTimeout(timer)
  }
}
