/** Where the service reads a secret. Nothing it throws or shows has the secret in it. */
export interface Sink {
  /** For messages: `file /run/secrets/app_writer`. */
  readonly place: string
  /** Bounded in time. When it throws, the sink may hold either secret. @throws `fence-failed` */
  deliver(secret: string, about: { readonly region: string; readonly role: string }): Promise<void>
  /** Whether `read` tells what stands there: false for a sink that can only be written. */
  readonly readsBack: boolean
  /** What stands there now; null: nothing, or it cannot be read back. @throws `fence-failed` */
  read(): Promise<string | null>
}
