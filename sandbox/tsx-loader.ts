import { createRequire } from 'node:module'
import { pathToFileURL } from 'node:url'

/** What `node --import` needs to run TypeScript, as an address: a bare name would be looked up from the process's own folder. */
export function tsxLoader(): string {
  return pathToFileURL(createRequire(import.meta.url).resolve('tsx')).href
}
