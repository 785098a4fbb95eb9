/** The one table of exit codes. README and `homeregion help exit-codes` print it. */
export const EXIT = {
  done: { code: 0, meaning: 'done' },
  unexpected: { code: 1, meaning: 'unexpected error (a bug; please report it)' },
  changes: { code: 2, meaning: 'plan has changes, or status is degraded (only with --exit-code)' },
  refused: { code: 3, meaning: 'declined, or a check refused before the fence (nothing was moved), or a fence is open' },
  notAllowed: { code: 4, meaning: 'not allowed' },
  conflict: { code: 5, meaning: 'conflict: another run holds the lease, the epoch moved, or the plan is stale' },
  rolledBack: { code: 6, meaning: 'rolled back: the source writes again, read back' },
  needsHuman: { code: 7, meaning: 'needs a human: fenced or moved, but not verified' },
  waiting: { code: 8, meaning: 'waiting at a gate' },
  unknown: { code: 9, meaning: 'the outcome is unknown' },
  rpo: { code: 10, meaning: 'RPO acknowledgement missing or too small' },
  usage: { code: 64, meaning: 'wrong usage' },
  invalidData: { code: 65, meaning: 'invalid runbook or data' },
  unreachable: { code: 69, meaning: 'control plane or all regions unreachable' },
  configuration: { code: 78, meaning: 'configuration' },
  interrupted: { code: 130, meaning: 'interrupted (Ctrl-C), state saved' },
  terminated: { code: 143, meaning: 'terminated, state saved' },
} as const satisfies Record<string, { code: number; meaning: string }>

export type ExitName = keyof typeof EXIT
