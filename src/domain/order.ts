/** By code unit: the same everywhere, whatever the locale, and without loading its collation tables. */
export function byCodeUnit(a: string, b: string): number {
  return a < b ? -1 : a > b ? 1 : 0
}
