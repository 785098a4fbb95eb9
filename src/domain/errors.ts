import type { ExitName } from './exit-codes.ts'

/** Every coded error and the exit code it ends a command with. */
export const ERRORS = {
  'invalid-key': 'usage',
  usage: 'usage',
  'not-a-terminal': 'usage',
  'config-invalid': 'configuration',
  'config-not-found': 'configuration',
  'secret-unavailable': 'configuration',
  'runbook-invalid': 'invalidData',
  'keys-file-invalid': 'invalidData',
  'unknown-region': 'usage',
  'unknown-key': 'refused',
  'unknown-run': 'refused',
  'key-exists': 'refused',
  'same-region': 'usage',
  'control-plane-unreachable': 'unreachable',
  'region-unreachable': 'unreachable',
  'kafka-unreachable': 'unreachable',
  'not-initialised': 'configuration',
  'wrong-database': 'configuration',
  'newer-schema': 'configuration',
  'privilege-missing': 'configuration',
  declined: 'refused',
  'check-refused': 'refused',
  'interlock-refused': 'notAllowed',
  'limit-exceeded': 'notAllowed',
  'fence-too-wide': 'notAllowed',
  'key-busy': 'conflict',
  'run-leased': 'conflict',
  'run-closed': 'conflict',
  superseded: 'conflict',
  'epoch-moved': 'conflict',
  'plan-stale': 'conflict',
  'rolled-back': 'rolledBack',
  'needs-human': 'needsHuman',
  'outcome-unknown': 'unknown',
  'unknown-fence': 'usage',
  /** A fence was not applied or lifted as a whole; its state line says what stands. */
  'fence-failed': 'needsHuman',
  /** Somebody wants the fence to stand whom this lift had not heard of. */
  'fence-asked-again': 'conflict',
  /** A fence does not hold back what it should. */
  'fence-open': 'refused',
  /** The control plane's word that the region owns something is missing. */
  'lift-refused': 'notAllowed',
  /** The region's lease is not granted: a run withholds it, or the region is in exile. */
  'lease-withheld': 'conflict',
  /** A region knows a later grant of its lease than the control plane, which has lost commits. */
  'control-plane-behind': 'refused',
  /** A region that was failed over and is not back yet was to own something. */
  'region-exiled': 'notAllowed',
  /** The approval of somebody who is not listed, who began the run, or who has spoken already. */
  'approval-refused': 'notAllowed',
  /** A forced failover was asked for while somebody still reaches the source. */
  'source-answers': 'refused',
  /** The policy forbids to lose what may be lost of a key. */
  'loss-forbidden': 'notAllowed',
  /** The acknowledgement is missing, or smaller than what may be lost. */
  'loss-not-acknowledged': 'rpo',
  /** The acknowledgement token is unknown, used, over, or for something else. */
  'ack-token-refused': 'rpo',
  sandbox: 'unexpected',
  unexpected: 'unexpected',
  interrupted: 'interrupted',
} as const satisfies Record<string, ExitName>

export type ErrorCode = keyof typeof ERRORS

export type ErrorText = {
  /** Line 1: the fact, with value and limit, and whose view it is. */
  readonly fact: string
  /** Line 2: what state the data is in. Never claims what was not read back. */
  readonly state?: string
  /** Line 3: the command to run next. */
  readonly next?: string
}

/** An error with a code, three lines for the operator, and whether trying again can help. No secret may enter any of its texts. */
export class HomeregionError extends Error {
  readonly code: ErrorCode
  readonly text: ErrorText
  readonly retriable: boolean
  readonly fields: Readonly<Record<string, unknown>>

  constructor(code: ErrorCode, text: ErrorText, options: { cause?: unknown; retriable?: boolean; fields?: Record<string, unknown> } = {}) {
    super(text.fact, options.cause === undefined ? undefined : { cause: options.cause })
    this.name = 'HomeregionError'
    this.code = code
    this.text = text
    this.retriable = options.retriable ?? false
    this.fields = options.fields ?? {}
  }

  get exit(): ExitName {
    return ERRORS[this.code]
  }
}

export function isHomeregionError(error: unknown, code?: ErrorCode): error is HomeregionError {
  return error instanceof HomeregionError && (code === undefined || error.code === code)
}
