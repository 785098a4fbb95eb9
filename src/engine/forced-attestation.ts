import type { Evidence } from '../domain/evidence.ts'
import { observe } from './checks/observe.ts'
import { subjectOf } from './forced-activation.ts'
import type { ForcedMove } from './forced-move.ts'

export async function attestationOf(move: ForcedMove): Promise<Evidence> {
  const bound = { runId: move.journal.runId, step: 'attest', attemptId: null }
  return await observe(move.engine, subjectOf(move), { check: 'source-attested', parameters: {} }, bound)
}

/**
 * A word that an earlier process recorded counts from when it was said, so that waiting for others makes nothing worse. How long ago that is
 * says the control plane's clock alone: between that record and one that is made now.
 */
export async function sinceItWasSaid(move: ForcedMove): Promise<void> {
  const { engine, journal } = move
  if (move.attestation === null) return
  const now = await attestationOf(move)
  await journal.commit('attested', { evidence: [now] })
  const said = (await engine.controlPlane.evidence(journal.runId)).filter(e => e.check === 'source-attested' && e.verdict === 'pass')
  const [first, last] = [said.find(e => e.facts?.['reason'] === now.facts?.['reason']), said.at(-1)]
  if (first === undefined || last === undefined) return
  const agoMs = Date.parse(last.recordedAt) - Date.parse(first.recordedAt) + Number(first.facts?.['ageMs'] ?? 0)
  move.attestation = { ...move.attestation, saidAtMs: now.asOfMonotonicMs - Math.max(0, agoMs) }
}
