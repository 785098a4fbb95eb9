import { HomeregionError } from '../../domain/errors.ts'
import { parseKey, showKey } from '../../domain/key.ts'
import type { ControlPlane } from '../../domain/ports.ts'
import { failoverOf } from '../../engine/reconcile.ts'
import { forcedHere, requireReturnAllowed } from '../../engine/return-permission.ts'
import type { CliContext } from '../context.ts'
import type { TransferFlags } from '../run-command.ts'
import { transfer } from '../transfer.ts'

export type BackFlags = Omit<TransferFlags, 'to'>

/** The keys that a forced failover took, by a planned move back to where they came from: the same gates, and it loses nothing. */
export async function failback(context: CliContext, runId: string, flags: BackFlags): Promise<void> {
  const { controlPlane } = await context.connect()
  const { config } = await context.settings()
  const failover = await failoverOf(controlPlane, runId)
  const asked = { coolDownMs: config.policy.coolDownMs, reason: flags.reason ?? null }
  await requireReturnAllowed(controlPlane, failover, { ...asked, command: `homeregion failback ${runId}` })
  const keys = failover.keys.map(k => k.key)
  await transfer(context, keys, { ...flags, to: failover.source })
}

/** Each key to where it was at home before; all of them have to have come from one region. */
export async function transferBack(context: CliContext, keys: readonly string[], flags: BackFlags): Promise<void> {
  const { controlPlane } = await context.connect()
  const { config } = await context.settings()
  if (flags.keysFile !== undefined || keys.length === 0)
    throw usage('--back needs its keys on the command line', 'homeregion transfer KEY --back')
  const typed = keys.map(parseKey)
  const homes = await Promise.all(typed.map(async key => await formerHome(controlPlane, key)))
  const [to] = homes
  const other = homes.findIndex(home => home !== to)
  if (to === undefined || other >= 0)
    throw usage(
      `the keys came from more than one region: ${showKey(typed[other] ?? '')} from ${homes[other] ?? '?'}, not from ${to ?? '?'}`,
      'one command a region',
    )
  const failover = await forcedHere(controlPlane, await controlPlane.ownership(typed))
  if (failover !== null && failover.source === to)
    await requireReturnAllowed(controlPlane, failover, {
      ...{ coolDownMs: config.policy.coolDownMs, reason: flags.reason ?? null },
      command: `homeregion transfer ${typed.map(showKey).join(' ')} --back`,
    })
  await transfer(context, typed, { ...flags, to })
}

async function formerHome(controlPlane: ControlPlane, key: string): Promise<string> {
  const log = await controlPlane.history(key)
  const home = log.at(-1)?.homeRegion
  const former = log.findLast(row => row.homeRegion !== home)?.homeRegion
  if (former !== undefined) return former
  throw new HomeregionError('unknown-key', {
    fact: home === undefined ? `${showKey(key)} is not registered` : `${showKey(key)} has never been at home anywhere but in ${home}`,
    state: 'Nothing was changed.',
    next: `homeregion key show ${showKey(key)}`,
  })
}

function usage(fact: string, next: string): HomeregionError {
  return new HomeregionError('usage', { fact, state: 'Nothing was changed.', next })
}
