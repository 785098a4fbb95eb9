import type { Engine } from './context.ts'
import type { RunJournal } from './run-journal.ts'

/**
 * A region remembers the highest token it has seen of a key, and refuses smaller ones. A control plane that has forgotten runs (a replica that was
 * behind, a backup) draws tokens from behind that mark: it draws on until it is past it, so that the run can carry out what it commits. Who was taken
 * over does not get past anybody this way: the new token is given to the holder alone.
 * @throws `superseded`, `run-closed`
 */
export async function drawAbove(engine: Engine, journal: RunJournal, regions: readonly string[], keys: readonly string[]): Promise<void> {
  const seen = await Promise.allSettled([...new Set(regions)].map(async name => await engine.region(name).highestToken(keys)))
  // Whoever does not answer refuses what comes next in its own words.
  const highest = Math.max(0, ...seen.map(s => (s.status === 'fulfilled' ? s.value : 0)))
  if (highest < journal.lease().token) return
  await engine.controlPlane.drawTokens(highest)
  await journal.retake()
}
