import type { FenceConfig, RegionConfig } from '../../domain/config.ts'
import { isHomeregionError } from '../../domain/errors.ts'
import type { Fence, FenceCause, FenceNotes } from '../../domain/fence.ts'
import type { FaultPoint, Hooks } from '../../domain/ports.ts'
import { createNotedFence, type HookAnswer } from './noted-fence.ts'

type ExecFence = Extract<FenceConfig, { kind: 'exec' }>

/** What of a command's output fits a line of a report; the reason stands at the end. */
const SAID_LENGTH = 300

/** A fence by commands of the operators' own. Values go in as environment variables; arguments are the configuration's, and no shell reads them. */
export function createExecFence(
  region: RegionConfig,
  fence: ExecFence,
  hooks: Hooks,
  notes: FenceNotes,
  fault: FaultPoint,
  now: () => string,
): Fence {
  const run = async (command: readonly string[], cause: FenceCause | null): Promise<{ code: number | null; said: string }> => {
    const environment = {
      HOMEREGION_REGION: region.name,
      HOMEREGION_FENCE: fence.name,
      HOMEREGION_REASON: cause?.reason ?? '',
      HOMEREGION_BY: cause?.by ?? '',
      HOMEREGION_RUN: cause?.runId ?? '',
    }
    try {
      const { code, output } = await hooks.run(command, environment, fence.timeoutMs)
      return { code, said: `${command[0] ?? ''} ended with ${code}${lastWords(output)}` }
    } catch (error) {
      // It could not be started: it has changed nothing, and says nothing about the fence.
      if (isHomeregionError(error)) return { code: null, said: error.text.fact }
      throw error
    }
  }
  const carriedOut = async (command: readonly string[], cause: FenceCause): Promise<HookAnswer> => {
    const { code, said } = await run(command, cause)
    return { ok: code === 0, said }
  }
  return createNotedFence(
    { region: region.name, name: fence.name },
    {
      kind: 'exec',
      place: 'this machine',
      shown: { apply: shellText(fence.apply), verify: shellText(fence.verify), lift: shellText(fence.lift) },
      apply: async cause => await carriedOut(fence.apply, cause),
      lift: async cause => await carriedOut(fence.lift, cause),
      verify: async () => {
        const { code, said } = await run(fence.verify, null)
        return { verdict: code === 0 ? 'pass' : code === 1 ? 'fail' : 'unknown', said }
      },
    },
    notes,
    fault,
    now,
  )
}

function lastWords(output: string): string {
  const text = output.trim().replace(/\s+/g, ' ')
  return text === '' ? '' : `: ${text.length > SAID_LENGTH ? `… ${text.slice(-SAID_LENGTH)}` : text}`
}

/** As it could be typed into a shell. It is only shown. */
function shellText(command: readonly string[]): string {
  return command.map(word => (/^[\w.:@/+=,-]+$/.test(word) ? word : `'${word.replaceAll("'", `'\\''`)}'`)).join(' ')
}
