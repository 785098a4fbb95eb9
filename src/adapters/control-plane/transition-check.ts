import { FORCED_TRANSITIONS, TRANSITIONS, type Transition } from '../../domain/ownership.ts'

/**
 * The CHECK that lets only rows of `TRANSITIONS` into the ownership log: one alternative for each transition.
 * `is true` because a CHECK lets null pass, and a comparison with a missing predecessor is null.
 */
export function transitionCheck(transitions: readonly Transition[] = TRANSITIONS): string {
  return `(${transitions.map(alternative).join('\n    or ')}) is true`
}

/** A planned transition that makes another region the home needs an activation, and no other has one. */
export function interlockCheck(transitions: readonly Transition[] = TRANSITIONS): string {
  const names = transitions.filter(t => t.home === 'target' && !isForced(t)).map(t => quoted(t.name))
  return `(transition in (${names.join(', ')})) = (activation_id is not null)`
}

/** The transitions of a forced failover need one, and no others have one. */
export function forcedCheck(): string {
  return `(transition in (${FORCED_TRANSITIONS.map(quoted).join(', ')})) = (forced_id is not null)`
}

function isForced(t: Transition): boolean {
  return FORCED_TRANSITIONS.some(name => name === t.name)
}

function alternative(t: Transition): string {
  return `(${[`transition = ${quoted(t.name)}`, `to_state = ${quoted(t.to)}`, ...(t.from === null ? FIRST : [...after(t.from), ...run(t), ...target(t), ...home(t)]), epoch(t)].join(' and ')})`
}

/** The first row of a key has no predecessor and no run. */
const FIRST = [
  'seq = 1',
  ...['prev_seq', 'from_state', 'from_home', 'from_epoch', 'from_target', 'from_run'].map(column => `${column} is null`),
  "to_target = ''",
  "run_id = ''",
]

/** With the foreign key, which skips rows with a null: every part of the predecessor is given, and it is the row before. */
function after(from: string): string[] {
  return ['prev_seq = seq - 1', `from_state = ${quoted(from)}`, 'from_target is not null', 'from_run is not null']
}

/** A run starts from ACTIVE; what it began, only it goes on with, unless the key is seized. */
function run(t: Transition): string[] {
  return [begins(t) ? "run_id <> ''" : 'run_id = from_run']
}

function begins(t: Transition): boolean {
  return t.from === 'ACTIVE' || t.seizes === true
}

/** The target is set when a move begins, kept while it lasts, and gone when the key is ACTIVE. */
function target(t: Transition): string[] {
  if (t.to === 'ACTIVE') return ["to_target = ''"]
  if (begins(t)) return ["to_target <> ''", 'to_target <> from_home']
  return ['to_target = from_target']
}

function home(t: Transition): string[] {
  return t.home === 'target' ? ['to_home = from_target', 'to_home <> from_home'] : ['to_home = from_home']
}

function epoch(t: Transition): string {
  switch (t.epoch) {
    case 'first':
      return 'to_epoch = 1'
    case 'same':
      return 'to_epoch = from_epoch'
    case 'next':
      return 'to_epoch = from_epoch + 1'
  }
}

/** Names and states of `TRANSITIONS` are plain words; anything else would be a mistake there. */
function quoted(word: string): string {
  if (!/^[A-Za-z_-]+$/.test(word)) throw new RangeError(`${word} cannot stand in the transition check`)
  return `'${word}'`
}
