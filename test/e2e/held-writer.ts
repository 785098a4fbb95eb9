import { createInterface } from 'node:readline'
import pg from 'pg'
import { type DirectWrite, perform, sqlstateOf } from './direct-write.ts'

// A writer in a process of its own, for tests that suspend it inside its transaction: it writes, says so, and commits when it is told to.
const url = process.env['WRITER_URL']
const write = JSON.parse(process.env['WRITER_WRITE'] ?? 'null') as DirectWrite | null
if (url === undefined || write === null) throw new Error('usage: WRITER_URL=… WRITER_WRITE=… held-writer.ts')
const client = new pg.Client({ connectionString: url, application_name: 'batch-import' })
client.on('error', () => undefined)
await client.connect()
const ack = await perform(client, write)
process.stdout.write(`${JSON.stringify({ wrote: ack })}\n`)
const input = createInterface({ input: process.stdin })
for await (const line of input) {
  if (line !== 'commit') continue
  const answer = await client.query('commit').then(
    () => ({ committed: true }),
    (error: unknown) => ({ committed: false, code: sqlstateOf(error) }),
  )
  process.stdout.write(`${JSON.stringify(answer)}\n`)
  break
}
input.close()
await client.end().catch(() => undefined)
