import { createServer, type Socket } from 'node:net'
import pg from 'pg'

export type SessionPooler = {
  readonly port: number
  /** Server sessions that are open now. */
  sessions(): number
  /** Clients see the sessions of another role from now on: new ones only. */
  hideAs(login: { readonly user: string; readonly password: string } | null): void
  stop(): Promise<void>
}

export type PoolerOptions = {
  readonly target: { readonly port: number }
  readonly mode: 'session' | 'transaction'
  /** Every client gets a session of this role, whoever it logs in as. */
  readonly hideAs?: { readonly user: string; readonly password: string }
}

type Startup = { readonly user: string; readonly database: string }
type ServerSession = { readonly socket: Socket; readonly name: string }

// What PgBouncer takes from a client's start; it refuses the rest.
const KNOWN = ['user', 'database', 'application_name', 'client_encoding', 'datestyle', 'timezone', 'standard_conforming_strings']

/** A small PgBouncer: takes clients by password, and lends each a server session for as long as it stays, or for one transaction. */
export async function startSessionPooler(options: PoolerOptions): Promise<SessionPooler> {
  const idle: ServerSession[] = []
  const open = new Set<Socket>()
  let hidden = options.hideAs ?? null
  const forget = (socket: Socket) => {
    open.delete(socket)
    const at = idle.findIndex(s => s.socket === socket)
    if (at !== -1) idle.splice(at, 1)
  }

  const lend = async (startup: Startup, password: string): Promise<ServerSession> => {
    const login = hidden ?? { user: startup.user, password }
    const name = JSON.stringify([login, startup.database])
    const at = idle.findIndex(s => s.name === name)
    const [pooled] = at === -1 ? [] : idle.splice(at, 1)
    if (pooled !== undefined) return pooled
    const client = new pg.Client({ host: '127.0.0.1', port: options.target.port, database: startup.database, ...login })
    client.on('error', () => undefined)
    await client.connect()
    // Logged in: from here on its socket is ours, and the driver hears nothing more of it.
    const socket = client.connection.stream as Socket
    for (const event of ['data', 'end', 'error', 'close']) socket.removeAllListeners(event)
    socket.on('error', () => undefined)
    socket.on('close', () => forget(socket))
    open.add(socket)
    return { socket, name }
  }

  const giveBack = (session: ServerSession) => {
    session.socket.removeAllListeners('data')
    if (session.socket.destroyed) return
    if (options.mode === 'transaction') return void idle.push(session)
    // As PgBouncer's server_reset_query: lent again once both have answered.
    const frames = createFrames()
    let answers = 0
    session.socket.on('data', (data: Buffer) => {
      answers += frames(data).filter(f => f.type === 'Z').length
      if (answers < 2) return
      session.socket.removeAllListeners('data')
      idle.push(session)
    })
    session.socket.write(Buffer.concat([query('rollback'), query('discard all')]))
  }

  const server = createServer(client => {
    let startup: Startup | null = null
    let password: string | null = null
    let lent: ServerSession | null = null
    const lost = () => void client.destroy()
    let borrowing: Promise<void> | null = null
    /** Answers owed to the client before its session may go to somebody else. */
    let owed = 0
    const waiting: Buffer[] = []
    const frames = createFrames(() => startup === null)

    const borrow = async (first: Startup, secret: string): Promise<void> => {
      const session = await lend(first, secret)
      const answers = createFrames()
      lent = session
      session.socket.on('data', (data: Buffer) => {
        client.write(data)
        for (const frame of answers(data)) {
          if (frame.type !== 'Z') continue
          owed -= 1
          if (options.mode !== 'transaction' || owed > 0 || frame.body.toString('latin1') !== 'I') continue
          release(session)
        }
      })
      session.socket.once('close', lost)
    }

    const release = (session: ServerSession): void => {
      lent = null
      session.socket.off('close', lost)
      giveBack(session)
    }

    const forward = async (frame: Frame): Promise<void> => {
      if (frame.type === 'X') return void client.end()
      waiting.push(frame.whole)
      if (frame.type !== 'S' && frame.type !== 'Q') return
      if (lent === null && startup !== null) {
        borrowing ??= borrow(startup, password ?? '')
        await borrowing
        borrowing = null
      }
      owed += 1
      lent?.socket.write(Buffer.concat(waiting.splice(0)))
    }

    const greet = async (frame: Frame): Promise<void> => {
      if (startup === null) {
        if (frame.body.readInt32BE(0) === 80877103) return void client.write('N')
        const settings = startupSettings(frame.body)
        const strange = Object.keys(settings).find(name => !KNOWN.includes(name.toLowerCase()))
        if (strange !== undefined) return refuse(client, '08P01', `unsupported startup parameter: ${strange}`)
        startup = { user: settings['user'] ?? '', database: settings['database'] ?? '' }
        return void client.write(message('R', int32(3)))
      }
      if (frame.type !== 'p') return void client.destroy()
      const secret = frame.body.toString('utf8', 0, frame.body.length - 1)
      try {
        await borrow(startup, secret)
      } catch (error) {
        const code = error instanceof pg.DatabaseError ? (error.code ?? '08006') : '08006'
        return refuse(client, code, error instanceof Error ? error.message : String(error))
      }
      password = secret
      if (options.mode === 'transaction' && lent !== null) release(lent)
      client.write(Buffer.concat([message('R', int32(0)), message('K', Buffer.alloc(8)), message('Z', Buffer.from('I'))]))
    }

    open.add(client)
    client.on('error', () => undefined)
    client.on('close', () => {
      open.delete(client)
      if (lent === null) return
      // A client that left in the middle of something takes its session with it.
      if (owed > 0 || options.mode === 'transaction') lent.socket.destroy()
      else release(lent)
    })
    // One frame after the other, also while a session is being opened.
    let turn = Promise.resolve()
    client.on('data', (data: Buffer) => {
      turn = turn
        .then(async () => {
          for (const frame of frames(data)) await (password === null ? greet(frame) : forward(frame))
        })
        .catch(() => void client.destroy())
    })
  })
  await new Promise<void>(resolve => server.listen(0, '127.0.0.1', resolve))
  const address = server.address()
  if (address === null || typeof address === 'string') throw new Error('the pooler has no port')
  return {
    port: address.port,
    sessions: () => open.size,
    hideAs: login => {
      hidden = login
    },
    stop: async () => {
      for (const socket of open) socket.destroy()
      await new Promise<void>(resolve => server.close(() => resolve()))
    },
  }
}

type Frame = { readonly type: string; readonly body: Buffer; readonly whole: Buffer }

/** Cuts a stream into the protocol's messages; `untyped` says that the next one has no type yet, as at a client's start. */
function createFrames(untyped: () => boolean = () => false): (data: Buffer) => readonly Frame[] {
  let rest = Buffer.alloc(0)
  return data => {
    rest = Buffer.concat([rest, data])
    const found: Frame[] = []
    for (;;) {
      const head = untyped() ? 0 : 1
      if (rest.length < head + 4) return found
      const end = head + rest.readInt32BE(head)
      if (rest.length < end) return found
      const whole = Buffer.from(rest.subarray(0, end))
      rest = rest.subarray(end)
      found.push({ type: head === 0 ? '' : whole.toString('latin1', 0, 1), body: whole.subarray(head + 4), whole })
      // Whether the next one has a type is known when this one was looked at: at a client's start one comes at a time.
      if (head === 0) return found
    }
  }
}

function startupSettings(body: Buffer): Readonly<Record<string, string>> {
  const parts = body.toString('utf8', 4).split('\0')
  const settings: Record<string, string> = {}
  for (let i = 0; i + 1 < parts.length && parts[i] !== ''; i += 2) settings[parts[i] ?? ''] = parts[i + 1] ?? ''
  return settings
}

function refuse(client: Socket, code: string, text: string): void {
  client.end(message('E', Buffer.from(`SFATAL\0VFATAL\0C${code}\0M${text}\0\0`)))
}

function query(sql: string): Buffer {
  return message('Q', Buffer.from(`${sql}\0`))
}

function message(type: string, body: Buffer): Buffer {
  return Buffer.concat([Buffer.from(type), int32(body.length + 4), body])
}

function int32(value: number): Buffer {
  const buffer = Buffer.alloc(4)
  buffer.writeInt32BE(value)
  return buffer
}
