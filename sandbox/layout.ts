import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'

export const REGIONS = ['region-a', 'region-b'] as const
export type SandboxRegion = (typeof REGIONS)[number]

/** Keys the sandbox registers, all at home in region-a at first. */
export const KEYS: readonly string[] = Array.from({ length: 50 }, (_, i) => `tenant-${i + 1}`)

export const APP_DATABASE = 'app'
export const CONTROL_PLANE_DATABASE = 'homeregion'
export const OWNERSHIP_TOPIC = 'homeregion.ownership'

/** Where everything of one sandbox lies. Paths only: nothing here reads or writes. */
export type Layout = {
  readonly dir: string
  readonly config: string
  readonly environment: string
  readonly processes: string
  readonly secrets: string
  readonly lock: string
  readonly controlPlane: string
  readonly load: string
  region(name: SandboxRegion): { readonly dir: string; readonly postgres: string; readonly kafka: string; readonly service: string }
}

export function layout(dir: string = defaultDir()): Layout {
  const root = resolve(dir)
  return {
    dir: root,
    config: join(root, 'homeregion.yaml'),
    environment: join(root, 'sandbox.env'),
    processes: join(root, 'processes'),
    secrets: join(root, 'secrets'),
    lock: join(root, 'up.lock'),
    controlPlane: join(root, 'control-plane'),
    load: join(root, 'load'),
    region: name => {
      const at = join(root, name)
      return { dir: at, postgres: join(at, 'postgres'), kafka: join(at, 'kafka'), service: join(at, 'service') }
    },
  }
}

/** One sandbox per user unless another folder is given: two users of a machine do not meet. */
function defaultDir(): string {
  return process.env.HOMEREGION_SANDBOX ?? join(tmpdir(), `homeregion-sandbox-${process.getuid?.() ?? 'user'}`)
}

export function outboxTopic(region: SandboxRegion): string {
  return `outbox.${region}`
}

export function inboxGroup(region: SandboxRegion): string {
  return `inbox-${region}`
}
