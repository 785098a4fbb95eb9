import { createHash } from 'node:crypto'

export type Random = {
  /** Whole number from 0 to below `n`. */
  below(n: number): number
  chance(probability: number): boolean
  /** @throws RangeError when there is nothing to pick from */
  pick<T>(from: readonly T[]): T
}

/** The same seed and name give the same choices: each lane has its own, so that one lane's pace does not change another's choices. */
export function createRandom(seed: number, name: string): Random {
  let drawn = 0
  const next = (): number => {
    drawn += 1
    return createHash('sha256').update(`${seed} ${name} ${drawn}`).digest().readUInt32BE(0) / 2 ** 32
  }
  return {
    below: n => Math.floor(next() * n),
    chance: probability => next() < probability,
    pick: from => {
      const found = from[Math.floor(next() * from.length)]
      if (found === undefined) throw new RangeError('nothing to pick from')
      return found
    },
  }
}
