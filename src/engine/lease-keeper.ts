import type { Engine } from './context.ts'
import type { RunJournal } from './run-journal.ts'

/** Renews the run's lease while work goes on. A failure needs no action here: the next change under a lost lease is refused by the control plane. */
export function keepLease(engine: Engine, journal: RunJournal): { stop(): void } {
  const timer = setInterval(() => {
    engine.controlPlane.renew(journal.lease()).catch(() => undefined)
  }, engine.policy.runLeaseMs / 3)
  timer.unref()
  return { stop: () => clearInterval(timer) }
}
