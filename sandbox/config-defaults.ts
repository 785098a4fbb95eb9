import type { Config } from '../src/domain/config.ts'

/** What a configuration made by hand, for a test or a bench, says about forced failovers: nothing may be lost, nobody approves, no agent. */
export const NO_FAILOVER: {
  readonly policy: Omit<Config['policy'], 'maxKeys' | 'evidenceMaxAgeMs' | 'runLeaseMs' | 'callTimeoutMs'>
} & Pick<Config, 'agent' | 'reapply'> = {
  policy: {
    loss: [],
    darkAfterMs: 10_000,
    approvals: { approvers: [], needed: 1, aboveKeys: 100 },
    ackTokenMs: 600_000,
    coolDownMs: 600_000,
    automatic: null,
  },
  agent: { listen: '127.0.0.1:0', observeEveryMs: 1000 },
  reapply: null,
}
