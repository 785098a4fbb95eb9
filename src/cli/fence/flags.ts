export type FenceFlags = {
  readonly fence?: readonly string[]
  readonly reason?: string
  readonly yes?: boolean
  readonly asTarget?: boolean
}

export type RotateFlags = { readonly role?: readonly string[]; readonly reason?: string; readonly yes?: boolean }
