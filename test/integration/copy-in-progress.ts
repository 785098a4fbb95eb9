import type pg from 'pg'

type CopyConnection = {
  query(text: string): void
  sendCopyFail(text: string): void
  readonly stream: { write(data: Buffer): boolean }
}

/** A COPY from the client that has sent its rows so far and has not ended: the driver knows none. */
type CopyInProgress = {
  send(line: string): void
  /** Ends the copy; its error, if it has one. */
  end(): Promise<Error | null>
}

/** Returns once the server asks for rows. */
export async function startCopy(client: pg.Client, statement: string): Promise<CopyInProgress> {
  let wire: CopyConnection | null = null
  let failure: Error | null = null
  const started = later<undefined>()
  const ended = later<Error | null>()
  const nothing = () => undefined
  const finish = (error: Error | null) => {
    failure ??= error
    started.resolve(undefined)
  }
  const submittable = {
    submit: (connection: unknown) => {
      wire = connection as CopyConnection
      wire.query(statement)
    },
    handleCopyInResponse: () => started.resolve(undefined),
    handleError: (error: Error) => {
      finish(error)
      // A session that was ended says nothing more.
      ended.resolve(failure)
    },
    handleReadyForQuery: () => ended.resolve(failure),
    handleCommandComplete: nothing,
    handleRowDescription: nothing,
    handleDataRow: nothing,
    handlePortalSuspended: nothing,
    handleEmptyQuery: nothing,
    handleCopyData: nothing,
  }
  client.once('end', () => {
    finish(new Error('the session ended'))
    ended.resolve(failure)
  })
  client.query(submittable as unknown as pg.Submittable)
  await started.promise
  const write = (type: string, body: Buffer) => {
    const head = Buffer.alloc(5)
    head.write(type, 0, 'latin1')
    head.writeInt32BE(body.length + 4, 1)
    wire?.stream.write(Buffer.concat([head, body]))
  }
  return {
    send: line => write('d', Buffer.from(`${line}\n`)),
    end: async () => {
      write('c', Buffer.alloc(0))
      return await ended.promise
    },
  }
}

function later<T>(): { readonly promise: Promise<T>; readonly resolve: (value: T) => void } {
  let resolve: (value: T) => void = () => undefined
  const promise = new Promise<T>(done => {
    resolve = done
  })
  return { promise, resolve }
}
