import type { Servers } from './config-text.ts'
import type { Layout } from './layout.ts'
import type { SandboxSecrets } from './sandbox-secrets.ts'

export type InitialiseContext = {
  readonly layout: Layout
  readonly servers: Servers
  readonly secrets: SandboxSecrets
  readonly progress: (line: string) => void
}

/** Installs the control plane and each region's boundary, and registers the keys. */
export async function initialise(context: InitialiseContext): Promise<void> {
  context.progress('not initialised   the product has no installer yet')
}
