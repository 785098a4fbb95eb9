import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
import { readKeysFile } from '../../src/adapters/files/keys-file.ts'
import { codedError } from './coded-error.ts'
import { temporaryFolder } from './temporary-folder.ts'

function file(content: string | Uint8Array): string {
  return join(temporaryFolder({ keys: content }), 'keys')
}

const lines = (report: string) => report.split('\n').map(line => line.replace(/^.*\/keys:/, ''))

describe('a keys file', () => {
  test('may have comments, empty lines, a BOM and CRLF line ends', async () => {
    expect(await readKeysFile(file('\ufeff# moved on Tuesday\r\ntenant-1\r\n\r\n  \r\ntenant 2\r\n#tenant-3\r\ntenant-4'))).toEqual([
      'tenant-1',
      'tenant 2',
      'tenant-4',
    ])
  })

  test('is refused whole, with every line that is wrong in one report', async () => {
    const path = file('a\n--to\na\n\u001b[31mb\nregion-a\nc\nmoved\n')
    const judge = async (keys: readonly string[]) => {
      expect(keys).toEqual(['a', 'region-a', 'c', 'moved'])
      return new Map([
        ['region-a', 'is the name of a region'],
        ['moved', 'is at region-b already'],
      ])
    }
    const error = await codedError(async () => await readKeysFile(path, { judge }))
    expect(error.code).toBe('keys-file-invalid')
    expect(lines(error.report)).toEqual([
      '2:1: --to: a key cannot begin with "-"',
      '3:1: a stands on line 1 already',
      '4:1: "\\u001b[31mb": a key cannot contain control, zero-width or bidirectional characters',
      '5:1: region-a is the name of a region',
      '7:1: moved is at region-b already',
    ])
  })

  test('what is wrong with the file is said even when nobody can judge its keys', async () => {
    const judge = async () => await Promise.reject(new Error('control plane away'))
    const error = await codedError(async () => await readKeysFile(file('a\na\n'), { judge }))
    expect(lines(error.report)).toEqual(['2:1: a stands on line 1 already'])
    await expect(readKeysFile(file('a\n'), { judge })).rejects.toThrow('control plane away')
  })

  test.each([
    ['an empty file', '', 'the file holds no key'],
    ['only comments', '# a\n\n', 'the file holds no key'],
    ['bytes that are no text', new Uint8Array([97, 10, 98, 255]), '2:2: is not UTF-8 text'],
    ['more keys than the limit', 'a\nb\nc\nd\n', '4:1: more than 3 keys: there are 4'],
    ['more bytes than the limit', 'x'.repeat(101), 'is too large: 101 bytes, the limit is 100'],
  ])('%s is refused', async (_case, content, why) => {
    const error = await codedError(async () => await readKeysFile(file(content), { limits: { keys: 3, bytes: 100 } }))
    expect(error.code).toBe('keys-file-invalid')
    expect(error.report).toContain(why)
  })

  test('that is not there is a coded error', async () => {
    expect((await codedError(async () => await readKeysFile('/nowhere/keys'))).code).toBe('keys-file-invalid')
  })

  test('of 200,000 keys is read within seconds', async () => {
    const keys = Array.from({ length: 200_000 }, (_, i) => `tenant-${i}`)
    expect(await readKeysFile(file(keys.join('\n')))).toHaveLength(200_000)
  }, 20_000)
})
