/** The candidate nearest to what was written, when it is near enough to have been meant; else null. */
export function nearest(written: string, candidates: readonly string[]): string | null {
  const ranked = candidates
    .map(name => ({ name, distance: distance(written.toLowerCase(), name.toLowerCase()) }))
    .sort((a, b) => a.distance - b.distance)
  const [best] = ranked
  // A slip for each three letters begun: enough for a typing error, too little for another word.
  return best !== undefined && best.distance <= Math.ceil(best.name.length / 3) ? best.name : null
}

/** `did you mean "x"?`, or the list to choose from. */
export function suggestion(written: string, candidates: readonly string[]): string {
  const best = nearest(written.slice(0, 100), candidates)
  return best === null ? `there is ${candidates.join(', ')}` : `did you mean "${best}"?`
}

function distance(a: string, b: string): number {
  let row = Array.from({ length: b.length + 1 }, (_, i) => i)
  for (let i = 1; i <= a.length; i++) {
    const above = row
    row = [i]
    for (let j = 1; j <= b.length; j++) {
      const swap = a[i - 1] === b[j - 1] ? 0 : 1
      row.push(Math.min((above[j] ?? 0) + 1, (row[j - 1] ?? 0) + 1, (above[j - 1] ?? 0) + swap))
    }
  }
  return row[b.length] ?? 0
}
