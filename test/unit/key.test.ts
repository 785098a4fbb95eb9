import { describe, expect, test } from 'vitest'
import { keyProblem, parseKey, showKey } from '../../src/domain/key.ts'
import { codedError } from './coded-error.ts'

describe('ownership keys', () => {
  test.each(['tenant-42', 'a', 'Tenant 42', "o'neil", 'a"b', 'ключ', '租户', 'a/b:c@d', '$(rm -rf)', '<!channel>', 'x'.repeat(200)])(
    '%j is one',
    key => {
      expect(keyProblem(key)).toBeNull()
      expect(parseKey(key)).toBe(key)
    },
  )

  test.each([
    ['', 'empty'],
    ['--to', 'begin with "-"'],
    ['-', 'begin with "-"'],
    [' a', 'white space'],
    ['a ', 'white space'],
    ['a\nb', 'control'],
    ['a\u0000b', 'control'],
    ['\u001b[31mred', 'control'],
    ['a\u202eb', 'bidirectional'],
    ['a\u200bb', 'zero-width'],
    ['a\u2028b', 'control'],
    ['x'.repeat(201), 'at most 200'],
  ])('%j is none', async (key, why) => {
    expect(keyProblem(key)).toContain(why)
    const error = await codedError(() => parseKey(key))
    expect(error.code).toBe('invalid-key')
  })

  test('what is shown of a hostile key holds nothing a terminal would act on', () => {
    for (const key of ['\u001b[31mred', 'a\u202eb', 'a\nb', 'x'.repeat(300), '"', 'a\u2028b'])
      expect(showKey(key)).not.toMatch(/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/u)
  })
})
