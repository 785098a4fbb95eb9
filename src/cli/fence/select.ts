import type { RegionConfig } from '../../domain/config.ts'
import { suggestion } from '../../domain/did-you-mean.ts'
import { HomeregionError } from '../../domain/errors.ts'
import type { Fence } from '../../domain/fence.ts'
import type { CliContext, World } from '../context.ts'

export type Selected = { readonly world: World; readonly region: RegionConfig; readonly fences: readonly Fence[] }

/** The region and those of its fences that were named, or all. Nothing is connected. @throws `unknown-region`, `unknown-fence` */
export async function select(context: CliContext, name: string, only: readonly string[] | undefined): Promise<Selected> {
  const { config } = await context.settings()
  const region = config.regions.find(r => r.name === name)
  if (region === undefined)
    throw new HomeregionError('unknown-region', {
      fact: `there is no region ${JSON.stringify(name)}; ${suggestion(
        name,
        config.regions.map(r => r.name),
      )}`,
      state: 'Nothing was changed.',
      next: 'homeregion config show',
    })
  const world = await context.connect()
  const fences = world.fences(region.name)
  const missing = only?.find(wanted => !fences.some(f => f.name === wanted))
  if (missing !== undefined)
    throw new HomeregionError('unknown-fence', {
      fact: `${region.name} has no fence ${JSON.stringify(missing)}; ${suggestion(
        missing,
        fences.map(f => f.name),
      )}`,
      state: 'Nothing was changed.',
      next: `homeregion fence status ${region.name}`,
    })
  return { world, region, fences: only === undefined ? fences : fences.filter(f => only.includes(f.name)) }
}

/** A reason is what the next person at night has to go by. @throws `usage` */
export function reasonOf(reason: string): string {
  const text = reason.trim()
  if (text !== '') return text
  throw new HomeregionError('usage', {
    fact: '--reason is empty',
    state: 'Nothing was changed.',
    next: 'say why: it stands with the fence',
  })
}
