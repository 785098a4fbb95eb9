import { basename } from 'node:path'
import type { Sink } from '../../domain/sink.ts'
import { runProgram } from './run-program.ts'
import type { SinkContext } from './sink-context.ts'
import { sinkError } from './sink-error.ts'

/** A command of the operator's own. Only its program's name is shown: its arguments may hold a token, and what it prints may quote the secret. */
export function createCommandSink(argv: readonly string[], context: SinkContext): Sink {
  const place = `command ${basename(argv[0] ?? '')}`
  return {
    place,
    deliver: async (secret, about) => {
      const env = { ...context.env, HOMEREGION_REGION: about.region, HOMEREGION_ROLE: about.role }
      const { code } = await runProgram({ place, argv, env, input: secret, timeoutMs: context.timeoutMs })
      if (code !== 0) throw sinkError(place, `it ended with ${code}`)
    },
    readsBack: false,
    read: async () => null,
  }
}
