import { HomeregionError } from '../../domain/errors.ts'
import type { Action } from './action.ts'

/** Part of a forced failover, which moves all keys of a dark region in one commit and never one key by itself. */
export const isolate: Action<'isolate'> = {
  kind: 'isolate',
  plan: move => `fence ${move.source} from outside: its lease, its external fences, or a person's word`,
  apply: key =>
    Promise.reject(
      new HomeregionError('interlock-refused', {
        fact: `${key.move.source} is fenced from outside by a forced failover only, for all its keys at once`,
        state: 'Nothing was changed.',
        next: 'homeregion failover --force',
      }),
    ),
  verify: () => Promise.resolve('unknown'),
  undo: null,
}
