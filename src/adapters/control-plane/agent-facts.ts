import type { Config } from '../../domain/config.ts'
import { createConnection, type Secrets } from '../postgres/connection.ts'

/** What `doctor` reads of the control plane besides its records: its clock, and who leads the agents. */
export type AgentFacts = {
  /** Milliseconds since 1970 by the control plane's clock. */
  clockEpochMs(): Promise<number>
  /** null: no agent ever led. `leftMs` 0 or less: none does now. */
  leader(): Promise<{ readonly agent: string; readonly leftMs: number } | null>
  close(): Promise<void>
}

export function createAgentFacts(config: Config, secrets: Secrets): AgentFacts {
  const connection = createConnection({
    login: config.controlPlane.operator,
    secrets,
    name: 'control plane',
    applicationName: 'homeregion doctor',
    callTimeoutMs: config.policy.callTimeoutMs,
    unreachable: 'control-plane-unreachable',
  })
  return {
    clockEpochMs: async () => {
      const { rows } = await connection.query('read', 'select (extract(epoch from clock_timestamp()) * 1000)::float8 as now')
      return Number(rows[0]?.now)
    },
    leader: async () => {
      const { rows } = await connection.query(
        'read',
        'select agent, ceil(extract(epoch from until - clock_timestamp()) * 1000)::float8 as left_ms from homeregion_control.agent_lead',
      )
      const row = rows[0]
      return row === undefined ? null : { agent: String(row.agent), leftMs: Number(row.left_ms) }
    },
    close: async () => {
      await connection.close()
    },
  }
}
