import { formatMs } from '../domain/duration.ts'
import { HomeregionError } from '../domain/errors.ts'
import type { ForcedFailover } from '../domain/failover.ts'
import type { ControlPlane } from '../domain/ports.ts'
import { openExile } from './lost-keys.ts'

/**
 * Whether keys may go back to where a forced failover took them from. Whether that region has caught up is not asked here: the gates of the planned
 * move do, as for any other target.
 * @throws `region-exiled`, or `check-refused` while the cool-down lasts and nobody gave a reason
 */
export async function requireReturnAllowed(
  controlPlane: Pick<ControlPlane, 'exiles'>,
  failover: Pick<ForcedFailover, 'source' | 'runId' | 'at' | 'ageMs'>,
  asked: { readonly coolDownMs: number; readonly reason: string | null; readonly command: string },
): Promise<void> {
  const { coolDownMs, reason, command } = asked
  const { source, runId } = failover
  if ((await openExile(controlPlane, source)) !== null)
    throw new HomeregionError('region-exiled', {
      fact: `${source} is in exile: it was failed over by run ${runId} and is not back`,
      state: 'Nothing was changed; the keys stay where they are.',
      next: `homeregion rejoin ${source} --reason TEXT`,
    })
  if (reason !== null && reason.trim() !== '') return
  // Since its commit, by the control plane's clock alone.
  const { at, ageMs } = failover
  if (ageMs >= coolDownMs) return
  const allowedAt = new Date(Date.parse(at) + coolDownMs).toISOString()
  throw new HomeregionError('check-refused', {
    fact: `${source} was failed over ${formatMs(ageMs)} ago; policy.coolDown is ${formatMs(coolDownMs)}`,
    state: `Nothing was changed; the keys stay where they are, and may go back from ${allowedAt} on (in ${formatMs(coolDownMs - ageMs)}).`,
    next: `${command} --reason TEXT   (why it cannot wait; recorded with the run)`,
  })
}

/** The newest forced failover that took one of these keys to where it is at home now; null: none did. */
export async function forcedHere(
  controlPlane: ControlPlane,
  keys: readonly { readonly key: string; readonly epoch: number; readonly homeRegion: string }[],
): Promise<ForcedFailover | null> {
  const epochs = new Map(keys.map(k => [k.key, k.epoch]))
  const [first] = keys
  if (first === undefined) return null
  const failovers = await controlPlane.forcedFailovers({ limit: 1_000 })
  return failovers.find(f => f.target === first.homeRegion && f.keys.some(k => epochs.get(k.key) === k.epoch + 1)) ?? null
}
