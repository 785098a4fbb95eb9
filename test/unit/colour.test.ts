import { describe, expect, test } from 'vitest'
import { colourLevel } from '../../src/cli/colour.ts'

describe('one decision about colour', () => {
  test.each([
    ['a terminal has colour', 'auto', {}, true, 1],
    ['a pipe has none', 'auto', {}, false, 0],
    ['--color always colours a pipe', 'always', {}, false, 1],
    ['--color always goes before NO_COLOR', 'always', { NO_COLOR: '1' }, false, 1],
    ['--color never goes before FORCE_COLOR', 'never', { FORCE_COLOR: '1' }, true, 0],
    ['NO_COLOR goes before FORCE_COLOR', 'auto', { NO_COLOR: '1', FORCE_COLOR: '1' }, true, 0],
    ['an empty NO_COLOR counts as not set', 'auto', { NO_COLOR: '' }, true, 1],
    ['FORCE_COLOR colours a pipe', 'auto', { FORCE_COLOR: '1' }, false, 1],
    ['an empty FORCE_COLOR colours too', 'auto', { FORCE_COLOR: '' }, false, 1],
    ['FORCE_COLOR=0 takes it away', 'auto', { FORCE_COLOR: '0' }, true, 0],
    ['FORCE_COLOR=false takes it away', 'auto', { FORCE_COLOR: 'false' }, true, 0],
    ['FORCE_COLOR goes before TERM=dumb', 'auto', { FORCE_COLOR: '1', TERM: 'dumb' }, false, 1],
    ['a dumb terminal has none', 'auto', { TERM: 'dumb' }, true, 0],
  ] as const)('%s', (_rule, when, env, isTerminal, level) => {
    expect(colourLevel(when, env, isTerminal)).toBe(level)
  })
})
