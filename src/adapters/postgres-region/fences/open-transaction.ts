import type { InFlightWrite } from '../../../domain/boundary.ts'
import { formatMs } from '../../../domain/duration.ts'

/** Who has to end it, by what an operator can act on. */
export function named(w: InFlightWrite): string {
  const who = w.gid === null ? `pid ${w.pid ?? '?'}` : `prepared transaction ${JSON.stringify(w.gid)}`
  const application = w.application === null || w.application === '' ? '' : ` (${w.application})`
  return `${who} of ${w.role ?? 'unknown role'}${application}, ${w.state}, ${w.ageMs === null ? 'age not known' : `for ${formatMs(w.ageMs)}`}`
}
