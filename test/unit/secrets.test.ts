import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
import { redact } from '../../src/adapters/system/redaction.ts'
import { createSecrets } from '../../src/adapters/system/secrets.ts'
import { codedError } from './coded-error.ts'
import { temporaryFolder } from './temporary-folder.ts'

const path = { PATH: process.env['PATH'] }

describe('secrets', () => {
  test('come from an environment variable, a file and a command', async () => {
    const folder = temporaryFolder({ secret: 'from file\n' })
    const secrets = createSecrets({ ...path, PW: 'from env' })
    expect(await secrets.read({ env: 'PW' })).toBe('from env')
    expect(await secrets.read({ file: join(folder, 'secret') })).toBe('from file')
    expect(await secrets.read({ command: ['printf', 'from command\\nsecond line\\n'] })).toBe('from command')
  })

  test('are read once in a process', async () => {
    const folder = temporaryFolder()
    const count = join(folder, 'count')
    const secrets = createSecrets(path)
    const reference = { command: ['sh', '-c', `echo x >> '${count}'; wc -l < '${count}'`] }
    expect(await secrets.read(reference)).toBe(await secrets.read(reference))
  })

  test('are read again after they were replaced, and the old one stays redacted', async () => {
    const folder = temporaryFolder({ secret: 'old-secret' })
    const secrets = createSecrets(path)
    const reference = { file: join(folder, 'secret') }
    await secrets.read(reference)
    writeFileSync(reference.file, 'new-secret')
    expect(await secrets.read(reference)).toBe('old-secret')
    secrets.forget()
    expect(await secrets.read(reference)).toBe('new-secret')
    expect(redact('old-secret new-secret')).toBe('[redacted] [redacted]')
  })

  test.each([
    ['a variable that is not set', { env: 'NOT_SET' }, 'not set'],
    ['a file that is not there', { file: '/nowhere/secret' }, 'ENOENT'],
    ['a folder', { file: '/tmp' }, 'not a regular file'],
    ['a device that never ends', { file: '/dev/zero' }, 'not a regular file'],
    ['a program that is not there', { command: ['homeregion-no-such-program'] }, 'not found'],
    ['a program that fails', { command: ['sh', '-c', 'echo SECRET-VALUE; exit 3'] }, 'ended with 3'],
    ['a program that prints nothing', { command: ['true'] }, 'printed nothing'],
    ['a program that prints without end', { command: ['yes', 'SECRET-VALUE'] }, 'more than 1000 bytes'],
    ['a program that hangs', { command: ['sh', '-c', 'echo SECRET-VALUE; sleep 60'] }, 'no answer within 300 ms'],
    [
      'a child of it that keeps the pipe open',
      { command: ['sh', '-c', 'echo SECRET-VALUE; sleep 60 & exit 0'] },
      'no answer within 300 ms',
    ],
  ])('%s is a coded error without the value', async (_case, reference, why) => {
    const secrets = createSecrets(path, { timeoutMs: 300, sizeBytes: 1_000 })
    const error = await codedError(async () => await secrets.read(reference))
    expect(error.code).toBe('secret-unavailable')
    expect(error.text.fact).toContain(why)
    expect(JSON.stringify([error.text, error.fields, String(error.cause), error.stack])).not.toContain('SECRET-VALUE')
  })

  test('a failure is not kept: the vault may be unlocked meanwhile', async () => {
    const env: Record<string, string> = {}
    const secrets = createSecrets(env)
    await codedError(async () => await secrets.read({ env: 'LATER' }))
    env['LATER'] = 'there now'
    expect(await secrets.read({ env: 'LATER' })).toBe('there now')
  })
})

describe('redaction', () => {
  test('replaces a secret as it is, in a URL and in JSON', async () => {
    const secret = 'p@ss/w"ö rd'
    await createSecrets({ PW: secret }).read({ env: 'PW' })
    const text = `${secret} postgres://u:${encodeURIComponent(secret)}@h ${JSON.stringify({ secret })}`
    expect(redact(text)).toBe('[redacted] postgres://u:[redacted]@h {"secret":"[redacted]"}')
  })

  test('a secret inside a longer one leaves no tail', async () => {
    const secrets = createSecrets({ SHORT: 'correct-horse', LONG: 'correct-horse-battery' })
    await secrets.read({ env: 'SHORT' })
    await secrets.read({ env: 'LONG' })
    expect(redact('is correct-horse-battery')).toBe('is [redacted]')
  })

  test('text without a secret stays as it is', () => {
    expect(redact('tenant-42 moved')).toBe('tenant-42 moved')
  })
})
