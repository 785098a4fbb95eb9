import { describe, expect, test } from 'vitest'
import { nearest, suggestion } from '../../src/domain/did-you-mean.ts'
import { parseDuration, showDuration } from '../../src/domain/duration.ts'

describe('durations of files', () => {
  test.each([
    ['500ms', 500],
    ['30s', 30_000],
    ['5m', 300_000],
    ['2h', 7_200_000],
    ['0s', 0],
  ])('%s is %i ms', (text, ms) => {
    expect(parseDuration(text)).toBe(ms)
  })

  test.each(['30', '1.5s', '-1s', ' 30s', '30 s', '30S', '5d', 's', '', '1e3ms', '9999999999s'])('%j is refused', text => {
    expect(parseDuration(text)).toBeNull()
  })

  test('what is shown reads back as the same', () => {
    for (const ms of [0, 1, 999, 1_000, 1_500, 60_000, 90_000, 3_600_000, 5_400_000, 86_400_000])
      expect(parseDuration(showDuration(ms))).toBe(ms)
  })
})

describe('the word that was meant', () => {
  test.each([
    ['drane', 'drain'],
    ['fence-hold', 'fence-holds'],
    ['VERSION', 'version'],
  ])('%s was %s', (written, meant) => {
    expect(nearest(written, ['drain', 'fence-holds', 'version'])).toBe(meant)
  })

  test('another word is not guessed; the choices are listed', () => {
    expect(suggestion('banana', ['drain', 'fence'])).toBe('there is drain, fence')
  })
})
