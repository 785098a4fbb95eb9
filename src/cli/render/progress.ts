import { formatMs } from '../../domain/duration.ts'
import type { Evidence, Verdict } from '../../domain/evidence.ts'
import { showKey } from '../../domain/key.ts'
import type { RunEvent } from '../../engine/context.ts'
import type { Printer } from '../context.ts'
import { printable } from './error.ts'
import { keysText } from './plan.ts'
import { fitted, fittedAfter } from './wrapped.ts'

/** One line a fact, on stderr, in the order things happen: readable live, in a log and in a ticket. */
export type Progress = { readonly report: (event: RunEvent) => void; readonly close: () => void }

const LIVE_PAUSE_MS = 2_000
const OBSERVED_LENGTH = 240

export function createProgress(printer: Printer, live: LiveLine): Progress {
  let lastWaiting = 0
  // What comes from outside is made harmless; the mark in front is ours, and so is its colour.
  const line = (text: string, verdict?: Verdict) => {
    live.clear()
    printer.line(
      verdict === undefined ? fitted(printer, printable(text), 2) : `${mark(printer, verdict)} ${fittedAfter(printer, printable(text), 3)}`,
    )
  }
  const report = (event: RunEvent): void => {
    switch (event.type) {
      case 'run-opened':
        return line(`run ${event.runId}  ${keysText(event.plan)}`)
      case 'key-started':
        return event.total > 1 ? line(`\n${showKey(event.move.key)}  (${event.index + 1} of ${event.total})`) : undefined
      case 'step-started':
        live.show(printable(`${event.step.id}: ${event.step.title}`))
        return
      case 'step-passed': {
        line(`${event.step.id.padEnd(10)} ${formatMs(event.tookMs).padStart(7)}  ${event.step.title}`, 'pass')
        for (const e of event.evidence) printer.line(evidenceLine(printer, e))
        return
      }
      case 'gate-waiting': {
        const text = event.text ?? event.evidence.map(e => `${e.check}: ${cut(e.observed)}`).join('; ')
        if (live.show(printable(`${event.step.id}: ${text} (${formatMs(event.leftMs)} left)`))) return
        if (performance.now() - lastWaiting < LIVE_PAUSE_MS) return
        lastWaiting = performance.now()
        return line(`… ${event.step.id}: ${text} (${formatMs(event.leftMs)} left)`)
      }
      case 'ownership':
        return line(`  ${showKey(event.record.key)} is ${event.record.state}, home ${event.record.homeRegion}, epoch ${event.record.epoch}`)
      case 'watching':
        live.show(`${event.step.id}: ${event.evidence.map(e => `${e.check} ${e.verdict}`).join(', ')} (${formatMs(event.leftMs)} left)`)
        return
      case 'undoing':
        return line(`<- taking ${showKey(event.key)} back to its source: ${event.why}`)
      case 'key-ended':
        return line(
          `${showKey(event.move.key)} ${event.outcome === 'unknown' ? 'not settled' : event.outcome}: ${event.detail}`,
          event.outcome === 'moved' ? 'pass' : undefined,
        )
      case 'note':
        return line(`note: ${event.text}`)
    }
  }
  return { report, close: () => live.clear() }
}

/** The line that changes in place on a terminal; off a terminal there is none. `show` says whether it was shown. */
export type LiveLine = { show(text: string): boolean; clear(): void }

export const noLiveLine: LiveLine = { show: () => false, clear: () => undefined }

export function evidenceLine(printer: Printer, evidence: Evidence): string {
  const required = evidence.verdict === 'pass' ? '' : `  (required: ${evidence.required})`
  const text = printable(`${evidence.check}: ${cut(evidence.observed)}${required}  [${evidence.observer}]`)
  return `    ${mark(printer, evidence.verdict)} ${fittedAfter(printer, text, '    ok '.length)}`
}

export function mark(printer: Printer, verdict: Verdict): string {
  switch (verdict) {
    case 'pass':
      return printer.style.green('ok')
    case 'fail':
      return printer.style.red('NO')
    case 'unknown':
      return printer.style.yellow('??')
  }
}

function cut(text: string): string {
  return text.length > OBSERVED_LENGTH ? `${text.slice(0, OBSERVED_LENGTH - 1)}…` : text
}
