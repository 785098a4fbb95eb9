import { join } from 'node:path'
import { z } from 'zod'
import { HomeregionError } from '../../domain/errors.ts'
import type { Json } from '../../domain/evidence.ts'
import { type AsideEntry, FENCE_EVENTS, FENCE_KINDS, type FenceEntry } from '../../domain/fence.ts'
import { createAppendOnlyFile } from './append-only-file.ts'

const entryLine = z.object({
  entry: z.object({
    ...{ id: z.string(), region: z.string(), fence: z.string(), kind: z.enum(FENCE_KINDS), event: z.enum(FENCE_EVENTS), at: z.string() },
    ...{ by: z.string(), host: z.string(), runId: z.string().nullable(), reason: z.string().nullable(), detail: z.json() },
  }),
  /** Which control plane it is for; entries of older versions do not say. */
  of: z.object({ address: z.string(), installation: z.string().nullable() }).optional(),
})
const planeLine = z.object({ controlPlane: z.object({ address: z.string(), installation: z.string() }) })
const handedOverLine = z.object({ handedOver: z.array(z.string()) })
const refusedLine = z.object({ refused: z.object({ id: z.string(), why: z.string() }) })

type Binding = { readonly address: string; readonly installation: string | null }

/** What stands in the file, oldest first. */
export type KeptEntries = {
  readonly all: readonly FenceEntry[]
  /** To be handed over. */
  readonly pending: readonly FenceEntry[]
  /** Never to be handed over. */
  readonly aside: readonly AsideEntry[]
  /** Those of `aside` that are for this control plane, which refuses them. */
  readonly refused: readonly FenceEntry[]
  /** Which control plane answers at our address, as far as anybody here was told; null: nobody was. */
  readonly installation: string | null
}

/** The fence log of one service on this machine. Lines are only added: `handedOver` says what need not be sent again, `refused` what must not. */
export type FenceJournalFile = {
  readonly path: string
  keep(entries: readonly FenceEntry[]): Promise<void>
  /** Which control plane answers at our address. Remembered, so that entries of the next outage are bound to it. */
  learn(installation: string): Promise<void>
  handedOver(entries: readonly FenceEntry[]): Promise<void>
  refused(entry: FenceEntry, why: string): Promise<void>
  /** @throws `fence-failed` when it cannot be read, as all of them when it cannot be written */
  read(): Promise<KeptEntries>
}

/** @param address of the control plane: what tells it from others until it has said which it is */
export function createFenceJournalFile(folder: string, service: string, address: string): FenceJournalFile {
  let learned: string | null = null
  /** Which one answered last at an address. */
  const installationAt = (lines: readonly Json[], where: string): string | null => {
    const known = lines.flatMap(line => planeLine.safeParse(line).data?.controlPlane ?? [])
    return known.findLast(plane => plane.address === where)?.installation ?? null
  }
  const installationIn = (lines: readonly Json[]): string | null => learned ?? installationAt(lines, address)
  const file = createAppendOnlyFile(join(folder, `${encodeURIComponent(service)}.fences.jsonl`))
  const append = async (lines: Parameters<typeof file.append>[0]) => await keeping(file.path, () => file.append(lines))
  return {
    path: file.path,
    keep: async entries => {
      const of = { address, installation: installationIn(await keeping(file.path, () => file.read())) }
      await append(entries.map(entry => ({ entry, of })))
    },
    learn: async installation => {
      const before = installationIn(await keeping(file.path, () => file.read()))
      learned = installation
      if (before !== installation) await append([{ controlPlane: { address, installation } }])
    },
    handedOver: async entries => await append([{ handedOver: entries.map(entry => entry.id) }]),
    refused: async ({ id }, why) => await append([{ refused: { id, why } }]),
    read: async () => {
      const lines = await keeping(file.path, () => file.read())
      const installation = installationIn(lines)
      const kept = lines.flatMap(line => entryLine.safeParse(line).data ?? [])
      const isOurs = (of: Binding | undefined) => {
        if (of === undefined) return true
        // Made before anybody here had been told; perhaps somebody was since.
        const made = of.installation ?? installationAt(lines, of.address)
        return made === null || installation === null ? of.address === address : made === installation
      }
      const all: FenceEntry[] = kept.filter(k => isOurs(k.of)).map(k => k.entry)
      const foreign = kept.flatMap(({ entry, of }) => (of === undefined || isOurs(of) ? [] : [{ entry, why: madeFor(of) }]))
      const handedOver = new Set(lines.flatMap(line => handedOverLine.safeParse(line).data?.handedOver ?? []))
      const refused = new Map(
        lines.flatMap(line => {
          const said = refusedLine.safeParse(line).data?.refused
          return said === undefined ? [] : [[said.id, said.why] as const]
        }),
      )
      const left = all.filter(entry => !handedOver.has(entry.id))
      return {
        all,
        pending: left.filter(entry => !refused.has(entry.id)),
        aside: [
          ...foreign.filter(f => !handedOver.has(f.entry.id)),
          ...left.flatMap(entry => {
            const why = refused.get(entry.id)
            return why === undefined ? [] : [{ entry, why }]
          }),
        ],
        refused: left.filter(entry => refused.has(entry.id)),
        installation,
      }
    },
  }
}

function madeFor({ address, installation }: Binding): string {
  return `made for another control plane (${address}${installation === null ? '' : `, installation ${installation}`})`
}

async function keeping<T>(path: string, work: () => Promise<T>): Promise<T> {
  try {
    return await work()
  } catch (error) {
    const why = error instanceof Error ? ((error as NodeJS.ErrnoException).code ?? error.message) : String(error)
    throw new HomeregionError(
      'fence-failed',
      {
        fact: `what happens to fences cannot be kept in ${path}: ${why}`,
        state: 'Nothing was changed without a record of it.',
        next: 'make the folder writable, or set HOMEREGION_STATE_DIR',
      },
      { cause: error },
    )
  }
}
