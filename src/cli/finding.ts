/** One thing that `doctor` looked at. */
export type Finding = {
  readonly place: string
  readonly check: string
  readonly verdict: 'pass' | 'fail' | 'unknown'
  readonly detail: string
  /** All that it is about, where the detail names the first ones. */
  readonly keys?: readonly string[]
}
