import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { parse, stringify } from 'yaml'
import type { Scene } from './scene.ts'

export type WrittenLogin = { url: string; password?: { file: string } }

/** As much of the sandbox's configuration file as tests change. */
export type WrittenConfig = {
  controlPlane: WrittenLogin
  regions: Record<
    'region-a' | 'region-b',
    { database: { operator: WrittenLogin; writers: WrittenLogin[] }; kafka: { brokers: string[] }; fences: readonly unknown[] }
  >
  policy: Record<string, unknown>
}

let copies = 0

/** A copy of the rig's configuration with changes; returns its path. */
export function configCopy(scene: Scene, change: (config: WrittenConfig) => void): string {
  const config = parse(readFileSync(scene.rig.config, 'utf8')) as WrittenConfig
  change(config)
  copies += 1
  const path = join(scene.dir, `homeregion-${copies}.yaml`)
  writeFileSync(path, stringify(config, { aliasDuplicateObjects: false }))
  return path
}

/** The same login through another port of this machine. */
export function atPort(login: WrittenLogin, port: number): WrittenLogin {
  const url = new URL(login.url)
  url.port = String(port)
  url.hostname = '127.0.0.1'
  return { ...login, url: url.toString() }
}

export function portOf(login: WrittenLogin): number {
  return Number(new URL(login.url).port)
}
