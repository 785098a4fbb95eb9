import { suggestion } from '../../domain/did-you-mean.ts'
import { HomeregionError } from '../../domain/errors.ts'
import { rejoin as bringBack } from '../../engine/rejoin.ts'
import { composeRecovery } from '../compose-recovery.ts'
import type { CliContext } from '../context.ts'
import { requireAsking, requireConsent } from '../fence/consent.ts'
import { reasonOf } from '../fence/select.ts'
import { watchSignals } from '../operator.ts'
import { printable } from '../render/error.ts'
import { resultText } from '../render/fence.ts'

export type RejoinFlags = { readonly reason: string; readonly yes?: boolean }

export async function rejoin(context: CliContext, region: string, flags: RejoinFlags): Promise<void> {
  const format = context.format('json')
  requireAsking(context, flags.yes === true)
  const reason = reasonOf(flags.reason)
  const { config } = await context.settings()
  const names = config.regions.map(r => r.name)
  if (!names.includes(region))
    throw new HomeregionError('unknown-region', {
      fact: `there is no region ${JSON.stringify(region)}; ${suggestion(region, names)}`,
      state: 'Nothing was changed.',
      next: 'homeregion config show',
    })
  const world = await context.connect()
  await requireConsent(flags.yes === true, {
    region,
    to: 'fence it, replace its rows of the keys that were taken from it, and open it again',
  })
  const { recovery, fault } = composeRecovery(config, context.env)
  const signals = watchSignals(context, () => undefined)
  const told: string[] = []
  try {
    await bringBack(
      {
        ...{ controlPlane: world.controlPlane, region: name => world.region(name), fences: name => world.fences(name) },
        ...{ recovery, fault, shared: config.topology === 'shared', defaultHome: config.ownership.defaultHome },
        by: `${world.holder.user}@${world.holder.host}`,
        watcher: {
          started: () => undefined,
          ended: result => context.err.line(resultText(result, context.err)),
          interrupted: signals.interrupted,
        },
        tell: line => {
          told.push(line)
          if (format === 'text') context.out.line(printable(line))
        },
      },
      region,
      reason,
    )
    if (format === 'json') context.out.line(JSON.stringify({ region, back: true, done: told }))
  } finally {
    signals.stop()
    await recovery.close()
  }
}
