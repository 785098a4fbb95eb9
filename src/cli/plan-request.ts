import { loadRunbook } from '../adapters/files/runbook-file.ts'
import { HomeregionError } from '../domain/errors.ts'
import { parseKey, showKey } from '../domain/key.ts'
import type { OwnershipRecord } from '../domain/ownership.ts'
import type { Plan } from '../domain/plan.ts'
import { computePlan } from '../domain/planning.ts'
import type { ControlPlane } from '../domain/ports.ts'
import type { CliContext } from './context.ts'

/** What `plan` and `transfer` are asked for. */
export type PlanFlags = { readonly to: string; readonly keysFile?: string; readonly runbook: string; readonly confirmCount?: number }

/** Reads what the request names and computes the plan. Nothing is changed. */
export async function requestPlan(context: CliContext, keys: readonly string[], flags: PlanFlags): Promise<Plan> {
  const pinned = loadRunbook(flags.runbook, context.cwd)
  if (pinned.runbook.intent === 'failover')
    throw usage(`runbook ${pinned.runbook.name} may lose writes; a transfer never does`, 'homeregion failover --force --runbook …')
  if (pinned.runbook.intent === 'rejoin')
    throw usage(`runbook ${pinned.runbook.name} moves no key: it brings a region back`, 'homeregion rejoin REGION --runbook …')
  const { config } = await context.settings()
  if (keys.length === 0 && flags.keysFile === undefined)
    throw usage('no key given', 'homeregion transfer KEY --to REGION   or   --keys-file FILE')
  const typed = keys.map(parseKey)
  const twice = typed.find((key, i) => typed.indexOf(key) !== i)
  if (twice !== undefined) throw usage(`${showKey(twice)} is given twice`)
  const { controlPlane } = await context.connect()
  const records = [...(await controlPlane.ownership(typed))]
  const listed: string[] = []
  if (flags.keysFile !== undefined) {
    const { readKeysFile } = await import('../adapters/files/keys-file.ts')
    const regions = new Set(config.regions.map(r => r.name))
    const refusal = (key: string, record: OwnershipRecord | undefined): [string, string][] => {
      if (typed.includes(key)) return [[key, 'is given on the command line too']]
      if (record === undefined) return [[key, regions.has(key) ? 'is the name of a region, not a key' : 'is not registered']]
      return record.state === 'ACTIVE' && record.homeRegion === flags.to ? [[key, `is at home in ${flags.to} already`]] : []
    }
    const judge = async (read: readonly string[]) => {
      const found = new Map((await controlPlane.ownership(read)).map(r => [r.key, r]))
      records.push(...found.values())
      return new Map(read.flatMap(key => refusal(key, found.get(key))))
    }
    listed.push(...(await readKeysFile(flags.keysFile, { judge })))
  }
  const fencesRegion = pinned.runbook.steps.some(step => step.action?.kind === 'fence-region')
  const atHome = fencesRegion ? await keysAtHome(controlPlane) : new Map<string, number>()
  const plan = computePlan({ pinned, keys: [...typed, ...listed], target: flags.to, records, config, atHome })
  if (plan.moves.length > config.policy.maxKeys && flags.confirmCount !== plan.moves.length)
    throw new HomeregionError('limit-exceeded', {
      fact: `the plan moves ${plan.moves.length} keys; policy.maxKeys is ${config.policy.maxKeys}. First of them: ${plan.moves
        .slice(0, 5)
        .map(m => showKey(m.key))
        .join(', ')} (plan ${plan.id})`,
      state: 'Nothing was changed.',
      next: `the same command with --confirm-count ${plan.moves.length}, if that is what was meant`,
    })
  return plan
}

async function keysAtHome(controlPlane: ControlPlane): Promise<ReadonlyMap<string, number>> {
  const counts = new Map<string, number>()
  for (const { homeRegion, keys } of await controlPlane.countOwnership()) counts.set(homeRegion, (counts.get(homeRegion) ?? 0) + keys)
  return counts
}

function usage(fact: string, next?: string): HomeregionError {
  return new HomeregionError('usage', { fact, state: 'Nothing was changed.', ...(next === undefined ? {} : { next }) })
}
