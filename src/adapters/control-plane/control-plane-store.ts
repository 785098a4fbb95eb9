import type { Config } from '../../domain/config.ts'
import type { ControlPlane } from '../../domain/ports.ts'
import { createConnection, type Secrets } from '../postgres/connection.ts'
import { findAuditBreak, readAudit } from './audit-chain.ts'
import { createFailoverControl } from './failover-control.ts'
import { appendFenceLog, readFenceLog, readFencesTold, readInstallation } from './fence-log.ts'
import { newerSchema, olderSchema } from './install.ts'
import { commitChange } from './journal-commit.ts'
import { countOwnership, findOwnership, listOwnership, readHistory } from './ownership-queries.ts'
import { REFUSAL, sqlstate, translate } from './refusals.ts'
import { registerKeys } from './registration.ts'
import { noteRejoinStep, pinRejoinRunbook, readRejoinRunbook } from './rejoin-runbook.ts'
import { drawTokens, renewLease, retakeLease, takeLease } from './run-lease.ts'
import { openRun } from './run-opening.ts'
import { findRun, listRuns, readAttempts, readEvidence } from './run-queries.ts'
import { CONTROL_PLANE_VERSION } from './schema.ts'
import { readControlPlaneFacts } from './schema-check.ts'

/** The authority on ownership, behind the port: one pipelined session with the operator login, opened at the first call. */
export function createControlPlane(config: Config, secrets: Secrets): ControlPlane {
  const { callTimeoutMs, runLeaseMs } = config.policy
  const connection = createConnection({
    login: config.controlPlane.operator,
    secrets,
    name: 'control plane',
    applicationName: 'homeregion',
    callTimeoutMs,
    unreachable: 'control-plane-unreachable',
    boundLocks: true,
  })

  const coded = async <T>(work: () => Promise<T>): Promise<T> => {
    try {
      return await work()
    } catch (error) {
      throw sqlstate(error) === REFUSAL.version ? await otherVersion() : translate(error)
    }
  }

  // A commit extends the lease itself. A renewal behind a long one would be given up on, and the session with it that both are on.
  let committing: Promise<unknown> = Promise.resolve()
  // Closing a run lets go of all its keys, and whoever closes it has opened or read it: how many they are says how long that may take.
  const sizes = new Map<string, number>()

  const otherVersion = async () => {
    const found = await connection.query('read', 'select coalesce(max(version), 0) as version from homeregion_control.schema_version')
    const version = Number(found.rows[0]?.version)
    return version > CONTROL_PLANE_VERSION ? newerSchema(version) : olderSchema(version)
  }

  return {
    ownership: async keys => await coded(async () => await findOwnership(connection, keys)),
    listOwnership: async filter => await coded(async () => await listOwnership(connection, filter)),
    countOwnership: async () => await coded(async () => await countOwnership(connection)),
    history: async key => await coded(async () => await readHistory(connection, key)),
    register: async keys => await coded(async () => await registerKeys(connection, keys, callTimeoutMs)),
    openRun: async (plan, holder, reason, options) => {
      const lease = await coded(
        async () => await openRun(connection, plan, holder, reason, { runLeaseMs, callTimeoutMs }, options?.seize ?? false),
      )
      sizes.set(lease.runId, plan.moves.length)
      return lease
    },
    takeRun: async (runId, holder, force) =>
      await coded(async () => await takeLease(connection, runId, holder, force ? 'force' : 'free', runLeaseMs)),
    drawTokens: async above => await coded(async () => await drawTokens(connection, above)),
    retakeRun: async (lease, holder) => await coded(async () => await retakeLease(connection, lease, holder, runLeaseMs)),
    renew: async lease => {
      await committing
      await coded(async () => await renewLease(connection, lease, runLeaseMs))
    },
    release: async lease => await coded(async () => await renewLease(connection, lease, 0)),
    commit: async (lease, change) => {
      const commit = coded(
        async () => await commitChange(connection, lease, change, { runLeaseMs, callTimeoutMs, keysOfRun: sizes.get(lease.runId) ?? 0 }),
      )
      committing = commit.catch(() => undefined)
      return await commit
    },
    run: async runId => {
      const run = await coded(async () => await findRun(connection, runId))
      if (run !== null) sizes.set(run.id, run.moves.length)
      return run
    },
    runs: async filter => await coded(async () => await listRuns(connection, filter)),
    attempts: async runId => await coded(async () => await readAttempts(connection, runId)),
    evidence: async runId => await coded(async () => await readEvidence(connection, runId)),
    logFence: async entries => await coded(async () => await appendFenceLog(connection, entries)),
    installation: async () => await coded(async () => await readInstallation(connection)),
    fenceLog: async filter => await coded(async () => await readFenceLog(connection, filter)),
    fencesTold: async () => await coded(async () => await readFencesTold(connection)),
    ...createFailoverControl(connection, config.policy, coded),
    rejoinRunbook: async region => await coded(async () => await readRejoinRunbook(connection, region)),
    pinRejoinRunbook: async (region, pinned, after) => await coded(async () => await pinRejoinRunbook(connection, region, pinned, after)),
    noteRejoinStep: async (region, step) => await coded(async () => await noteRejoinStep(connection, region, step)),
    audit: async limit => await coded(async () => await readAudit(connection, limit)),
    auditBreak: async () => await coded(async () => await findAuditBreak(connection)),
    facts: async () => await coded(async () => await readControlPlaneFacts(connection, config)),
    close: async () => {
      await connection.close()
    },
  }
}
