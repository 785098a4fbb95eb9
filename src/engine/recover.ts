import { HomeregionError, isHomeregionError } from '../domain/errors.ts'
import type { ExitName } from '../domain/exit-codes.ts'
import type { KeyOutcome } from '../domain/journal.ts'
import { showKey } from '../domain/key.ts'
import { reopenDrained } from './actions/drain.ts'
import { isMoved, type KeyMove, refresh } from './key-move.ts'
import { GateNotPassed } from './move-key.ts'
import { undoKey } from './undo-key.ts'

/** How one key's part of the run ended. `outcome` null: the run stays open, resume or abort settle it. */
export type KeyEnd = {
  readonly outcome: KeyOutcome | null
  readonly exit: ExitName
  /** The fact and the state of the data, as read back. */
  readonly fact: string
  readonly state: string
  readonly next: string | null
}

/** How long the authority is asked before the run gives up on it. */
const AUTHORITY_DEADLINE_MS = 8_000
const RETRY_PAUSE_MS = 250

/**
 * What happens after something went wrong with a key. The authority decides: if it says that the key is the target's, there is only
 * forward; otherwise the key goes back. If it cannot be asked, a key that was only drained is opened again where it was (the boundary
 * itself refuses that once it is fenced), a fenced one stays fenced.
 * @throws `superseded` and its kin: another operator has the run, nothing more is touched
 */
export async function recover(key: KeyMove, error: unknown): Promise<KeyEnd> {
  const { journal, move } = key
  const shown = showKey(move.key)
  const cause = textOf(error)
  if (isForeign(error)) throw error
  if (isHomeregionError(error, 'needs-human')) return leftToHuman(key, error)
  const interrupted = error instanceof GateNotPassed && error.why === 'interrupted'
  const runCommand = (verb: 'resume' | 'abort') => `homeregion ${verb} ${journal.runId}`
  if (!(await regainAuthority(key))) return await withoutAuthority(key, cause)
  if (isMoved(move, key.record)) {
    const exit: ExitName = interrupted ? 'interrupted' : 'needsHuman'
    return {
      outcome: null,
      exit,
      fact: cause,
      state: `${shown} is ${move.target}'s since epoch ${key.record.epoch}; there is no way back, only forward.`,
      next: runCommand('resume'),
    }
  }
  if (interrupted)
    return {
      outcome: null,
      exit: 'interrupted',
      fact: 'interrupted; the state is saved',
      state: `${shown} is ${key.record.state} (home ${move.source}, epoch ${key.record.epoch}): ${key.record.state === 'ACTIVE' ? `${move.source} writes it` : 'nobody can write it until it is resumed or aborted'}; nothing was released.`,
      next: `${runCommand('resume')}   or   ${runCommand('abort')}`,
    }
  key.engine.operator.report({ type: 'undoing', key: move.key, why: cause })
  try {
    if (await undoKey(key))
      return {
        outcome: 'rolled-back',
        exit: 'rolledBack',
        fact: cause,
        state: `${shown} is written at ${move.source} again, epoch ${key.record.epoch}: read back, and a write as each writer is admitted.`,
        next: `homeregion run show ${journal.runId}`,
      }
    return {
      outcome: null,
      exit: 'needsHuman',
      fact: cause,
      state: `${shown} is ${move.target}'s since epoch ${key.record.epoch}; there is no way back, only forward.`,
      next: runCommand('resume'),
    }
  } catch (undoError) {
    if (isForeign(undoError)) throw undoError
    return {
      outcome: null,
      exit: 'needsHuman',
      fact: `${cause}; and the way back failed: ${textOf(undoError)}`,
      state: `${shown} is ${key.record.state} on record (home ${key.record.homeRegion}, epoch ${key.record.epoch}); it was NOT verified that ${move.source} can write it.`,
      next: (isHomeregionError(undoError, 'fence-asked-again') ? undoError.text.next : undefined) ?? runCommand('abort'),
    }
  }
}

/** What the engine does not understand it neither goes on with nor takes back. */
function leftToHuman(key: KeyMove, error: HomeregionError): KeyEnd {
  return {
    outcome: null,
    exit: 'needsHuman',
    fact: error.text.fact,
    state: error.text.state ?? `${showKey(key.move.key)} was left as it is.`,
    next: `homeregion abort ${key.journal.runId}`,
  }
}

/** A fresh token and a fresh record, or false when the control plane does not answer in time. */
async function regainAuthority(key: KeyMove): Promise<boolean> {
  const { engine } = key
  const started = engine.clock.monotonicMs()
  await key.pending.catch(() => undefined)
  for (;;) {
    try {
      await key.journal.retake()
      await refresh(key)
      return true
    } catch (error) {
      if (isForeign(error) || isHomeregionError(error, 'epoch-moved')) throw error
      if (engine.clock.monotonicMs() - started > AUTHORITY_DEADLINE_MS) return false
      await engine.clock.sleep(RETRY_PAUSE_MS)
    }
  }
}

async function withoutAuthority(key: KeyMove, cause: string): Promise<KeyEnd> {
  const { move, journal } = key
  const shown = showKey(move.key)
  const next = `homeregion resume ${journal.runId}   or   homeregion abort ${journal.runId}   (when the control plane answers)`
  const end = (exit: ExitName, state: string): KeyEnd => ({
    outcome: null,
    exit,
    fact: `the control plane does not answer: ${cause}`,
    state,
    next,
  })
  switch (key.reached) {
    case 'nothing':
      return end('unknown', `${shown} was not drained by this run: ${move.source} still writes it under epoch ${move.epoch}.`)
    case 'drain-sent': {
      const reopened = await reopenDrained(key).then(() => null, textOf)
      const row = await key.engine
        .region(move.source)
        .read(move.key)
        .catch(() => null)
      if (row?.writable === true)
        return end('unknown', `${shown} is written at ${move.source} under epoch ${row.epoch} (read back); the record may say DRAINING.`)
      return end('unknown', `${shown} is drained at ${move.source} and could not be reopened${reopened === null ? '' : `: ${reopened}`}.`)
    }
    case 'fence-sent': {
      const row = await key.engine
        .region(move.source)
        .read(move.key)
        .catch(() => null)
      return end(
        'needsHuman',
        row === null
          ? `${shown}: the fence at ${move.source} could not be read back.`
          : `${shown} is ${row.state} at ${move.source} (read back); nobody was activated.`,
      )
    }
    case 'activation-sent':
      return end('unknown', `${shown} is fenced at ${move.source}; whether ${move.target} became home is not known. Nothing was un-fenced.`)
    case 'activated': {
      const row = await key.engine
        .region(move.target)
        .read(move.key)
        .catch(() => null)
      const open =
        row === null
          ? 'its boundary could not be read back'
          : row.writable
            ? `${move.target} writes it (read back)`
            : `its boundary is not open yet (${row.state}, read back)`
      return end('needsHuman', `${shown} is ${move.target}'s since epoch ${key.record.epoch}; ${open}.`)
    }
  }
}

/** Another operator has the run: whatever this process believes is out of date. */
export function isForeign(error: unknown): boolean {
  return isHomeregionError(error) && (['superseded', 'run-leased', 'run-closed'] as const).some(code => code === error.code)
}

export function textOf(error: unknown): string {
  if (error instanceof HomeregionError) return error.text.fact
  return error instanceof Error ? error.message : String(error)
}
