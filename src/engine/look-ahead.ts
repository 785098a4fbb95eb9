import { type ForcedMove, patienceMs, type Tries } from './forced-move.ts'
import { tryRegion } from './vantage.ts'

/** Answers older than this are asked for again before the commit. */
const YOUNG_MS = 1_000
/** Tries take a little longer at one time than at another; what ends so much before the wait is young all the same. */
const SLACK_MS = 100

async function begin({ engine, source, settings }: ForcedMove): Promise<Tries> {
  const [asOf, asOfMonotonicMs] = [engine.clock.now(), engine.clock.monotonicMs()]
  const own = await tryRegion(engine, source, patienceMs(settings))
  return { own, asOf, asOfMonotonicMs, endedMonotonicMs: engine.clock.monotonicMs() }
}

/** How long the last tries took, which tells a dead address from one that swallows everything. */
function lastTookMs(move: ForcedMove): number {
  return move.triesTookMs ?? patienceMs(move.settings)
}

/** The tries of now, and how long they took for whoever has to plan the next ones. */
export async function tryNow(move: ForcedMove): Promise<Tries> {
  const tries = await begin(move)
  move.triesTookMs = tries.endedMonotonicMs - tries.asOfMonotonicMs
  return tries
}

/**
 * While something else is waited for, for `leftMs` more: the tries that the hand-over needs, begun so that their answer is there when the wait is
 * over. Called again and again; only the first call near enough begins them.
 */
export function tryAhead(move: ForcedMove, leftMs: number, withinMs: number): void {
  const inMs = leftMs - lastTookMs(move) - SLACK_MS
  if (move.triesAhead != null || inMs > withinMs) return
  const tries = inMs > 0 ? move.engine.clock.sleep(inMs).then(async () => await begin(move)) : begin(move)
  // A gate that is left in between leaves them behind, and nobody hears how they ended.
  tries.catch(() => undefined)
  move.triesAhead = tries
}

/** The answers of the tries that were begun ahead where they are young enough, else those of new ones. */
export async function triesForHandOver(move: ForcedMove): Promise<Tries> {
  const ahead = await move.triesAhead?.catch(() => null)
  move.triesAhead = null
  if (ahead != null && move.engine.clock.monotonicMs() - ahead.endedMonotonicMs <= YOUNG_MS) return ahead
  return await tryNow(move)
}
