/** What `key list` may be asked for. */
export type ListOptions = { readonly home?: string; readonly state?: string; readonly after?: string; readonly limit: number }
