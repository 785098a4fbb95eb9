import { HomeregionError } from '../../domain/errors.ts'
import type { Json } from '../../domain/evidence.ts'
import { showKey } from '../../domain/key.ts'
import type { ActionKind, ActionUse, SqlParameter } from '../../domain/runbook.ts'
import type { KeyMove } from '../key-move.ts'
import type { Action } from './action.ts'

/** What a runbook's author adds between the steps that move ownership. None of them can be looked at afterwards, so an unfinished one is `unknown`. */
function authored<K extends ActionKind>(
  kind: K,
  plan: Action<K>['plan'],
  work: (key: KeyMove, use: Extract<ActionUse, { kind: K }>) => Promise<Json>,
): Action<K> {
  return {
    kind,
    plan,
    apply: async (key, step, use) => {
      const id = key.engine.newId()
      await key.pending
      await key.journal.commit(`${step.id}-start`, { starts: [{ id, key: key.move.key, step: step.id, action: kind }] })
      try {
        const result = await work(key, use)
        await key.engine.fault(`${kind}:applied`)
        key.journal.buffer({ ends: [{ id, outcome: 'done', result }] })
      } catch (error) {
        key.journal.buffer({ ends: [{ id, outcome: 'failed', result: { error: error instanceof Error ? error.message : String(error) } }] })
        throw error
      }
    },
    verify: () => Promise.resolve('unknown'),
    undo: null,
  }
}

export const exec = authored(
  'exec',
  (_move, use) => `run ${use.command.map(c => JSON.stringify(c)).join(' ')}`,
  async (key, use) => await runCommand(key, use),
)

export const notify = authored(
  'notify',
  (_move, use) => `notify through ${JSON.stringify(use.command[0] ?? '')}`,
  async (key, use) => {
    // A notification that fails never stops a move.
    return await runCommand(key, use).catch((error: unknown) => {
      key.engine.operator.report({ type: 'note', text: `notification failed: ${error instanceof Error ? error.message : String(error)}` })
      return { failed: true }
    })
  },
)

export const http = authored(
  'http',
  (_move, use) => `${use.method} ${use.url}, expecting ${use.expectStatus}`,
  async (key, use) => {
    const answer = await key.engine.hooks.request(use.method, use.url, { ...valuesOf(key) }, use.timeoutMs)
    if (answer.status !== use.expectStatus)
      throw new HomeregionError('check-refused', {
        fact: `${use.method} ${use.url} answered ${answer.status}, expected ${use.expectStatus}`,
      })
    return { status: answer.status }
  },
)

export const sql = authored(
  'sql',
  (move, use) => `run a statement in ${use.region === 'source' ? move.source : move.target}: ${use.statement}`,
  async (key, use) => {
    const values = valuesOf(key)
    const region = use.region === 'source' ? key.move.source : key.move.target
    const rows = await key.engine.region(region).execute(
      use.statement,
      use.parameters.map(name => values[name]),
    )
    return { rows }
  },
)

export const pause = authored(
  'pause',
  (_move, use) => `wait ${use.forMs} ms`,
  async (key, use) => {
    await key.engine.clock.sleep(use.forMs)
    return { pausedMs: use.forMs }
  },
)

async function runCommand(key: KeyMove, use: { readonly command: readonly string[]; readonly timeoutMs: number }): Promise<Json> {
  const environment = Object.fromEntries(
    Object.entries(valuesOf(key)).map(([name, value]) => [`HOMEREGION_${name.toUpperCase()}`, String(value)]),
  )
  const { code, output } = await key.engine.hooks.run(use.command, environment, use.timeoutMs)
  if (code !== 0)
    throw new HomeregionError('check-refused', {
      fact: `${use.command[0] ?? 'the command'} ended with exit code ${code} for ${showKey(key.move.key)}: ${output.slice(-300)}`,
    })
  return { code }
}

function valuesOf(key: KeyMove): Record<SqlParameter, string | number> {
  return { key: key.move.key, run: key.journal.runId, source: key.move.source, target: key.move.target, epoch: key.move.epoch }
}
