import { checkSpec } from '../../domain/checks.ts'
import { unknown } from '../../domain/evidence.ts'
import type { CheckHandler } from '../context.ts'

/** What nobody has looked at is unknown, and unknown opens nothing. */
export const notObserved: CheckHandler = (_engine, _subject, use) =>
  Promise.resolve(unknown('this host', checkSpec(use.check).sentence, 'not observed'))
