import { readFileSync } from 'node:fs'
import { packageFile } from '../../src/adapters/files/package-root.ts'

export function shippedText(): string {
  return readFileSync(packageFile('runbooks', 'transfer.yaml'), 'utf8')
}

type Change = readonly [string, string]

/** Shorter deadlines, for gates that are meant to run into them. */
export const SHORT_PREFLIGHT: Change = [
  'atMost: 2s }   # catch up while still serving: the write stop stays short\n    within: 30s',
  'atMost: 1s }\n    within: 3s',
]
export const SHORT_DRAIN: Change = ['within: 10s\n  - id: publish', 'within: 2s\n  - id: publish']
export const SHORT_PUBLISH: Change = ['events-replicated ]\n    within: 30s', 'events-replicated ]\n    within: 2s']
export const SHORT_CATCH_UP: Change = ['within: 60s', 'within: 3s']
/** A source that is not caught up may begin, so that a later gate is the one that meets it. */
export const NO_CATCH_UP_BEFORE: Change = [
  '      - replication-behind: { atMost: 2s }   # catch up while still serving: the write stop stays short\n',
  '',
]

/** A step of the author's own, before the step of that id. */
export function stepBefore(id: string, step: string): Change {
  return [`  - id: ${id}\n`, `${step}\n  - id: ${id}\n`]
}
