import { expect, test } from 'vitest'
import { randomClusterId } from '../../sandbox/kafka.ts'

test("a cluster id never begins with a dash, which Kafka's tools take for an option", () => {
  const drawn = [Buffer.alloc(16, 0xff).fill(0xf8, 0, 1), Buffer.alloc(16, 0xfb), Buffer.alloc(16, 0x01)]
  const id = randomClusterId(() => drawn.shift() ?? Buffer.alloc(16, 0x02))
  expect(Buffer.alloc(16, 0xfb).toString('base64url').startsWith('-')).toBe(true)
  expect(id.startsWith('-')).toBe(false)
  expect(id).toHaveLength(22)
})
