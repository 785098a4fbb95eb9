import type { OutsideFence } from '../domain/checks.ts'
import { formatMs } from '../domain/duration.ts'
import { HomeregionError } from '../domain/errors.ts'
import type { LeaseState } from '../domain/failover.ts'
import type { Fence } from '../domain/fence.ts'
import { wisher } from '../domain/fence-wish.ts'
import type { Engine } from './context.ts'
import type { Attestation, ForcedMove, ForcedSettings } from './forced-move.ts'
import { applyFences, coded, endOf, liftFences } from './region-fences.ts'

/** `--fence` in the operator's word, and what it proves. */
export const FENCE_WORDS = { lease: 'lease-over', external: 'external-fence-holds', attest: 'source-attested' } as const satisfies Readonly<
  Record<string, OutsideFence>
>
export type FenceWord = keyof typeof FENCE_WORDS

/** What there is, the strongest first: a lease needs nobody's word, an external fence its own probe, and a person is the last resort. */
export function chooseFence(
  settings: ForcedSettings,
  lease: LeaseState | undefined,
  asked: FenceWord | null,
  source: string,
): OutsideFence {
  const leased = settings.lease?.onAgentOutage === 'stop' && provesWhenOver(lease)
  const refuse = (fact: string, next: string) => {
    throw new HomeregionError('usage', { fact, state: 'Nothing was changed.', next })
  }
  if (asked === 'lease' && !leased)
    refuse(
      settings.lease === null
        ? `${source} has no lease configured`
        : settings.lease.onAgentOutage === 'keep'
          ? `the lease of ${source} is configured onAgentOutage: keep, so its end proves nothing`
          : whyNoProof(source, lease),
      'the same command with --fence external or --fence attest',
    )
  if (asked === 'external' && settings.external.length === 0)
    refuse(`${source} has no exec or http fence configured`, 'the same command with --fence lease or --fence attest')
  if (asked !== null) return FENCE_WORDS[asked]
  if (leased) return 'lease-over'
  return settings.external.length > 0 ? 'external-fence-holds' : 'source-attested'
}

/** It was granted, the region has said that it stops at the end, and nobody else can have granted since. */
function provesWhenOver(lease: LeaseState | undefined): lease is LeaseState {
  return lease !== undefined && lease.generation > 0 && lease.stops && lease.grantsKnown
}

function whyNoProof(source: string, lease: LeaseState | undefined): string {
  if (lease === undefined || lease.generation === 0) return `no lease was ever granted to ${source}: its being over proves nothing`
  return lease.stops
    ? `the control plane's server is not the one that made the last grant to ${source}, which may have made more: its being over proves nothing`
    : `${source} never said that its boundary stops writes at the lease's end: its being over proves nothing`
}

export function describeFence(fence: OutsideFence, settings: ForcedSettings, lease: LeaseState | undefined, source: string): string {
  switch (fence) {
    case 'lease-over': {
      const leftMs = lease?.leftMs ?? 0
      return leftMs > 0
        ? `the lease of ${source} will be granted no more and waited out: ${formatMs(leftMs)} are left`
        : `the lease of ${source} is over for ${formatMs(-leftMs)}, and will be granted no more`
    }
    case 'external-fence-holds':
      return `external fences of ${source} will be applied, and have to prove themselves: ${settings.external.map(f => f.name).join(', ')}`
    case 'source-attested':
      return `a person's word that ${source} can no longer write; a second person has to agree`
  }
}

/**
 * Since when nothing can have been committed at the source; negative: from so much later on, since until then it may write. Known before the
 * fence is applied, so that what is acknowledged covers the wait for it.
 */
export async function stoppedAgeMs(
  engine: Engine,
  about: {
    readonly source: string
    readonly fence: OutsideFence
    readonly settings: ForcedSettings
    readonly attestation: Attestation | null
    readonly heldAtMs: number | null
  },
): Promise<number | null> {
  const now = engine.clock.monotonicMs()
  switch (about.fence) {
    case 'lease-over': {
      const lease = (await engine.controlPlane.leaseStates()).find(l => l.region === about.source)
      return provesWhenOver(lease) ? -lease.leftMs : null
    }
    case 'external-fence-holds':
      return about.heldAtMs === null ? -about.settings.external.reduce((sum, f) => sum + f.timeoutMs, 0) : now - about.heldAtMs
    case 'source-attested':
      return about.attestation === null ? 0 : now - about.attestation.saidAtMs
  }
}

export function externalFences(move: ForcedMove): readonly Fence[] {
  return move.engine.fences(move.source).filter(f => move.settings.external.some(e => e.name === f.name))
}

/** Journalled before it begins; each of the three can be done again, so what a killed process left is finished by doing it. */
export async function isolateSource(move: ForcedMove, stepId: string): Promise<void> {
  const { engine, journal, source, fence } = move
  const id = engine.newId()
  await journal.commit('isolate-start', { starts: [{ id, key: null, step: stepId, action: 'isolate' }] })
  // Side by side with the fence: sessions and functions that are used for the first time after the commit would be write downtime.
  const warmed = engine
    .region(move.target)
    .warm()
    .catch(() => undefined)
  try {
    if (fence === 'lease-over') await withhold(move)
    if (fence === 'external-fence-holds') await applyExternal(move, stepId)
    await warmed
    await engine.fault('isolate:applied')
    journal.buffer({ ends: [{ id, outcome: 'done', result: { fence, source } }] })
  } catch (error) {
    journal.buffer({ ends: [{ id, outcome: 'failed', result: { fence, source, error: coded(error).text.fact } }] })
    throw error
  }
}

/** From its commit on no grant is made; what was granted runs out by itself, and the gate waits for that. */
async function withhold({ engine, journal, source }: ForcedMove): Promise<void> {
  const lease = await engine.controlPlane.withholdLease(source, journal.lease())
  if (provesWhenOver(lease)) return
  throw new HomeregionError('interlock-refused', {
    fact: whyNoProof(source, lease),
    state: 'Nothing was handed over.',
    next: 'homeregion failover --force --fence attest',
  })
}

async function applyExternal(move: ForcedMove, stepId: string): Promise<void> {
  const { engine, journal, operator } = move
  const fences = externalFences(move)
  const cause = { reason: `step ${stepId} of run ${journal.runId}`, by: engine.holder.user, runId: journal.runId }
  const results = await applyFences(fences, cause, {
    started: fence => operator.report({ type: 'note', text: `applying ${fence.name} to ${fence.region}` }),
    ended: result =>
      operator.report({ type: 'note', text: `${result.fence.name}: ${result.lines.join('; ') || (result.error?.text.fact ?? 'nothing')}` }),
    interrupted: () => operator.interrupted(),
  })
  const end = endOf(results, fences.length)
  if (end !== null) throw end
  move.heldAtMs = engine.clock.monotonicMs()
}

/** Before the commit only: the source is still the owner. What this run put up comes down, and the lease may be granted again. */
export async function releaseSource(
  move: Pick<ForcedMove, 'engine' | 'journal' | 'source' | 'fence' | 'operator'>,
  external: readonly Fence[],
): Promise<void> {
  const { engine, journal, source } = move
  if (move.fence === 'lease-over') {
    const lease = (await engine.controlPlane.leaseStates()).find(l => l.region === source)
    if (lease?.withheldBy === journal.runId) await engine.controlPlane.releaseLease(source, journal.lease())
  }
  if (move.fence !== 'external-fence-holds') return
  // What an earlier failover moved away is open elsewhere, and a region that was dark then has not heard of it: the fence keeps its writers out.
  if ((await engine.controlPlane.exiles(source)).some(e => e.endedAt === null)) {
    move.operator.report({
      type: 'note',
      text: `the fences of ${source} stay: an earlier failover from it stands on them until it is back`,
    })
    return
  }
  const mine: Fence[] = []
  const seen = new Map<string, number>()
  for (const fence of external) {
    const { state, cause, asked } = await fence.status()
    if (state === 'lifted' || cause === null) continue
    if (cause.runId === journal.runId && asked !== null) {
      mine.push(fence)
      seen.set(fence.name, asked)
    } else move.operator.report({ type: 'note', text: `fence ${fence.name} of ${source} stands for ${wisher(cause)}: this run leaves it` })
  }
  const cause = { reason: `run ${journal.runId} handed nothing over`, by: engine.holder.user, runId: journal.runId }
  const quiet = { started: () => undefined, ended: () => undefined, interrupted: () => false }
  const results = await liftFences(mine, cause, quiet, seen, () => Promise.resolve())
  const end = endOf(results, mine.length)
  if (end !== null) throw end
}
