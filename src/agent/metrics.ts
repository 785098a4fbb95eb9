type Labels = Readonly<Record<string, string>>
type Kind = 'gauge' | 'counter'
type Metric = { readonly kind: Kind; readonly help: string }

/** Every figure the agent serves; the name says the unit. */
export const METRICS = {
  homeregion_agent_leading: { kind: 'gauge', help: '1 while this agent holds the lead of all agents' },
  homeregion_lease_left_seconds: { kind: 'gauge', help: 'left of the lease as this agent told it to the region; below 0 it is over' },
  homeregion_lease_at_risk: { kind: 'gauge', help: '1 while a renewal is overdue and nothing withholds the lease' },
  homeregion_lease_withheld: { kind: 'gauge', help: '1 while a failover or an exile keeps the lease from being granted' },
  homeregion_lease_grants_total: { kind: 'counter', help: 'leases granted and told to the region by this agent' },
  homeregion_lease_failures_total: { kind: 'counter', help: 'renewals that did not reach the region' },
  homeregion_outbox_unpublished: { kind: 'gauge', help: 'committed events that have not left the outbox' },
  homeregion_outbox_oldest_seconds: { kind: 'gauge', help: "age of the oldest of them by the region's own clock" },
  homeregion_events_not_applied: { kind: 'gauge', help: "events that left the outbox and were not read by the other region's inbox" },
  homeregion_events_highest_per_second: { kind: 'gauge', help: 'most events per second in the last minute' },
  homeregion_contact_age_seconds: { kind: 'gauge', help: 'since this agent last reached it' },
  homeregion_heartbeat_age_seconds: { kind: 'gauge', help: "age of the newest heartbeat that the other region's inbox has" },
  homeregion_fence_holds: { kind: 'gauge', help: '1: stands and was proved; 0: lifted or open; absent: nothing should stand' },
  homeregion_fences_found_lifted_total: { kind: 'counter', help: 'fences that should have stood and did not' },
  homeregion_exiles_open: { kind: 'gauge', help: 'regions that were failed over and are not back' },
  homeregion_automatic_failovers_total: { kind: 'counter', help: 'forced failovers that this agent began by itself' },
  homeregion_alarms_total: { kind: 'counter', help: 'alarms raised' },
} as const satisfies Record<string, Metric>
export type MetricName = keyof typeof METRICS

export interface Metrics {
  /** null: not known any more; the figure is left out rather than shown as it was. */
  set(name: MetricName, labels: Labels, value: number | null): void
  /** A figure that is worked out when it is asked for. */
  live(name: MetricName, labels: Labels, value: () => number | null): void
  count(name: MetricName, labels: Labels): void
  /** Forgets a figure for all labels. */
  clear(name: MetricName): void
  /** Prometheus' text format. */
  text(): string
}

export function createMetrics(): Metrics {
  const values = new Map<MetricName, Map<string, () => number | null>>()
  const counts = new Map<string, number>()
  const put = (name: MetricName, labels: Labels, value: () => number | null) => {
    const known = values.get(name) ?? new Map<string, () => number | null>()
    values.set(name, known.set(labelText(labels), value))
  }
  return {
    set: (name, labels, value) => put(name, labels, () => value),
    live: put,
    count: (name, labels) => {
      const id = name + labelText(labels)
      counts.set(id, (counts.get(id) ?? 0) + 1)
      put(name, labels, () => counts.get(id) ?? 0)
    },
    clear: name => void values.delete(name),
    text: () =>
      [...values]
        .flatMap(([name, series]) => {
          const lines = [...series].flatMap(([labels, value]) => {
            const now = value()
            return now === null ? [] : [`${name}${labels} ${now}`]
          })
          return lines.length === 0 ? [] : [`# HELP ${name} ${METRICS[name].help}`, `# TYPE ${name} ${METRICS[name].kind}`, ...lines]
        })
        .map(line => `${line}\n`)
        .join(''),
  }
}

function labelText(labels: Labels): string {
  const inside = Object.entries(labels).map(([name, value]) => `${name}="${escape(value)}"`)
  return inside.length === 0 ? '' : `{${inside.join(',')}}`
}

function escape(value: string): string {
  return value.replaceAll('\\', '\\\\').replaceAll('"', '\\"').replaceAll('\n', '\\n')
}
