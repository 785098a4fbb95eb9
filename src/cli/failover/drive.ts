import { EXIT } from '../../domain/exit-codes.ts'
import { showKey } from '../../domain/key.ts'
import { describeBlocked } from '../../domain/loss.ts'
import type { Operator, RunEvent } from '../../engine/context.ts'
import type { ForcedEnd, ForcedOperator } from '../../engine/forced-move.ts'
import type { CliContext } from '../context.ts'
import { type Answers, isInteractive } from '../operator.ts'
import { driven } from '../run-command.ts'

const SHOWN = 10

export async function driveForced(
  context: CliContext,
  answers: Answers,
  work: (operator: ForcedOperator) => Promise<ForcedEnd>,
): Promise<void> {
  await driven(context, answers, async operator => await work(forcedOperator(context, operator)), { text: endText, json: endJson })
}

/** Thousands of keys change hands in one commit; a line for each would bury what matters. */
function forcedOperator(context: CliContext, operator: Operator): ForcedOperator {
  let changes = 0
  const report = (event: RunEvent) => {
    if (event.type === 'ownership') {
      changes += 1
      if (changes > SHOWN) return
    }
    operator.report(event)
  }
  return { ...operator, report, watches: isInteractive(context) }
}

function endText({ runId, state, fact, data, next, moved, blocked, fence }: ForcedEnd): string {
  const names = moved.slice(0, SHOWN).map(m => showKey(m.key))
  return [
    fact,
    `state: ${data}`,
    ...(next === null ? [] : [`next:  ${next}`]),
    ...(moved.length === 0
      ? []
      : [`moved: ${names.join(', ')}${moved.length > SHOWN ? `, +${moved.length - SHOWN} more` : ''}; fenced by ${fence}`]),
    ...blocked.slice(0, SHOWN).map(b => `blocked: ${describeBlocked(b)}`),
    ...(blocked.length > SHOWN ? [`+${blocked.length - SHOWN} more blocked`] : []),
    `run ${runId}: ${state}`,
  ].join('\n')
}

function endJson(end: ForcedEnd): string {
  const { runId, state, exit, source, target, fence, moved, blocked, fact, data, next } = end
  return JSON.stringify({
    ...{ run: runId, state, exit: EXIT[exit].code, source, target, fence, fact, data, next, blocked },
    moved: moved.map(m => ({ key: m.key, epoch: m.epoch + 1 })),
  })
}
