import type { SecretSink } from '../../domain/config.ts'
import type { Sink } from '../../domain/sink.ts'
import { redact, remember } from '../system/redaction.ts'
import { type ProgramEnd, runProgram } from './run-program.ts'
import type { SinkContext } from './sink-context.ts'
import { sinkError } from './sink-error.ts'

type Kubernetes = Extract<SecretSink, { kubernetes: unknown }>['kubernetes']

/** The first line says it; the rest could quote the manifest. */
const SHOWN_CHARACTERS = 300

/**
 * A key of a Secret. Applied on the server's side as a field of ours: the other keys stay, the Secret is made when it is missing, and no
 * annotation keeps a copy of what was sent.
 */
export function createKubernetesSink(sink: Kubernetes, context: SinkContext): Sink {
  const place = `Kubernetes secret ${sink.namespace}/${sink.secret} (${sink.key})`
  const kubectl = async (args: readonly string[], input: string | null): Promise<ProgramEnd> => {
    const argv = ['kubectl', ...(sink.context === null ? [] : [`--context=${sink.context}`]), `--namespace=${sink.namespace}`, ...args]
    return await runProgram({ place, argv, env: context.env, input, timeoutMs: context.timeoutMs })
  }
  const refuse = (end: ProgramEnd) => {
    const [line = ''] = redact(end.stderr).trim().split(/\r?\n/)
    return sinkError(place, `kubectl ended with ${end.code}${line === '' ? '' : `: ${line.slice(0, SHOWN_CHARACTERS)}`}`)
  }
  return {
    place,
    deliver: async secret => {
      const data = Buffer.from(secret, 'utf8').toString('base64')
      remember(data)
      const manifest = {
        apiVersion: 'v1',
        kind: 'Secret',
        metadata: { name: sink.secret, namespace: sink.namespace },
        data: { [sink.key]: data },
      }
      const end = await kubectl(
        ['apply', '--server-side', '--force-conflicts', '--field-manager=homeregion', '-f', '-'],
        JSON.stringify(manifest),
      )
      if (end.code !== 0) throw refuse(end)
    },
    readsBack: true,
    read: async () => {
      const end = await kubectl(['get', '--ignore-not-found', '-o', 'json', `secret/${sink.secret}`], null)
      if (end.code !== 0) throw refuse(end)
      return end.stdout.trim() === '' ? null : valueOf(end.stdout, sink.key, place)
    },
  }
}

function valueOf(text: string, key: string, place: string): string | null {
  let answer: unknown
  try {
    answer = JSON.parse(text)
  } catch {
    throw sinkError(place, 'kubectl printed no JSON')
  }
  const value = (answer as { data?: Record<string, unknown> | null } | null)?.data?.[key]
  return typeof value === 'string' ? Buffer.from(value, 'base64').toString('utf8') : null
}
