import { type AgentParts, reasonOf } from './parts.ts'

export const ALARMS = [
  'lease-at-risk',
  'lease-over',
  'lease-not-enforced',
  'control-plane-behind',
  'fence-found-lifted',
  'fence-open',
  'exile-answers',
  'automatic-failover',
] as const
export type AlarmKind = (typeof ALARMS)[number]

/** Tells whoever the configuration names that something needs a person now. One that cannot be delivered is said, and changes nothing. */
export async function raiseAlarm(
  parts: Pick<AgentParts, 'config' | 'hooks' | 'log' | 'metrics'>,
  kind: AlarmKind,
  about: { readonly region: string; readonly fence?: string; readonly fact: string },
): Promise<void> {
  const { config, hooks, log, metrics } = parts
  log('alarm', { kind, ...about })
  metrics.count('homeregion_alarms_total', { kind })
  if (config.alarm === null) return
  const environment = {
    HOMEREGION_ALARM: about.fact,
    HOMEREGION_ALARM_KIND: kind,
    HOMEREGION_REGION: about.region,
    HOMEREGION_FENCE: about.fence ?? '',
  }
  try {
    const { code, output } = await hooks.run(config.alarm.command, environment, config.alarm.timeoutMs)
    if (code !== 0) log('alarm-not-delivered', { kind, region: about.region, reason: `it ended with ${code}: ${output.slice(-200)}` })
  } catch (error) {
    log('alarm-not-delivered', { kind, region: about.region, reason: reasonOf(error) })
  }
}
