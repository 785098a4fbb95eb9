import type { AuditFinding } from '../../domain/boundary.ts'
import type { Observation } from '../../domain/evidence.ts'
import type { FenceLook, FenceProbe } from '../../engine/fence-probe.ts'
import type { FenceResult } from '../../engine/region-fences.ts'
import type { Printer } from '../context.ts'
import type { FencePlan } from '../fence/plans.ts'
import { printable } from './error.ts'
import { mark } from './progress.ts'
import { renderTable } from './table.ts'
import { fittedAfter } from './wrapped.ts'

/** A cell of a table; what does not fit stands in `-o json`. */
const CELL = 60

/** Every statement and call, in order, with where and why. Several lines of one statement stay together. */
export function fencePlanText(plans: readonly FencePlan[], printer: Printer): string {
  const { style } = printer
  return plans
    .flatMap(({ fence, kind, steps, problem }) => [
      `${style.bold(printable(fence))} (${kind})`,
      ...(problem === null ? [] : [`  ${style.yellow('no plan could be made:')} ${printable(problem)}`]),
      ...(problem === null && steps.length === 0 ? ['  nothing to do'] : []),
      ...steps.flatMap((step, i) => [
        `  ${String(i + 1).padStart(2)}. ${printable(step.place)}: ${printable(step.why)}`,
        ...printable(step.text)
          .split('\n')
          .map(line => `        ${line}`),
      ]),
    ])
    .join('\n')
}

const DONE = { apply: 'applied', lift: 'lifted', verify: 'verified' } as const

/** One fence as it ended: what stands as read back, and each proof. */
export function resultText(result: FenceResult, printer: Printer): string {
  const { fence, verb, error, lines, proofs } = result
  const name = `${printable(fence.name)} (${fence.kind})`
  if (error !== null) {
    const { fact, state } = error.text
    return [
      `${mark(printer, 'fail')} ${name}: ${verb} failed: ${printable(fact)}`,
      ...(state === undefined ? [] : [`    state: ${printable(state)}`]),
    ].join('\n')
  }
  const bad = proofs.some(p => p.verdict === 'fail') ? 'fail' : proofs.some(p => p.verdict === 'unknown') ? 'unknown' : 'pass'
  return [
    `${mark(printer, bad)} ${name}: ${DONE[verb]}`,
    ...lines.map(line => `    ${printable(line)}`),
    ...proofs.map(proof => observationLine(proof, printer)),
  ].join('\n')
}

export function resultJson(region: string, results: readonly FenceResult[], controlPlane: boolean, file: string): string {
  const fences = results.map(({ fence, verb, error, lines, proofs }) => ({
    name: fence.name,
    kind: fence.kind,
    verb,
    ok: error === null && proofs.every(p => p.verdict === 'pass'),
    error: error === null ? null : { code: error.code, ...error.text },
    holds: lines,
    proofs,
  }))
  return JSON.stringify({ region, fences, recorded: { controlPlane, file } })
}

export function fenceStatusText(looks: readonly FenceLook[], printer: Printer): string {
  const found = looks.filter(l => l.foundLifted)
  const rows = looks.map(({ fence, status, foundLifted }) => [
    fence.region,
    fence.name,
    fence.kind,
    foundLifted ? 'FOUND LIFTED' : status.state,
    status.since ?? '-',
    cell(status.cause?.by ?? '-'),
    cell(status.cause?.reason ?? '-'),
    cell(status.holds.join('; ') || '-'),
  ])
  return [
    renderTable(
      ['region', 'fence', 'kind', 'state', 'since', 'by', 'reason', 'holds'],
      rows.map(row => row.map(printable)),
    ),
    ...found.map(({ fence, told }) =>
      printer.style.red(
        printable(
          `fence ${fence.name} of ${fence.region} was applied by ${told?.by ?? '?'} at ${told?.at ?? '?'} and is lifted: not by homeregion`,
        ),
      ),
    ),
  ].join('\n')
}

export function probeText(region: string, found: FenceProbe, printer: Printer): string {
  const words = { pass: 'every write is refused', fail: 'NOT CLOSED', unknown: 'not known' } as const
  return [
    ...found.fences.flatMap(f => [`${printable(f.fence.name)} (${f.fence.kind})`, ...f.proofs.map(p => observationLine(p, printer))]),
    'writers',
    ...found.writes.map(w => observationLine(w, printer)),
    `${mark(printer, found.verdict)} ${printable(region)}: ${words[found.verdict]}`,
  ].join('\n')
}

export function auditText(region: string, findings: readonly AuditFinding[], printer: Printer): string {
  const open = findings.filter(f => !f.accepted)
  const lines = [...open, ...findings.filter(f => f.accepted)].flatMap(f => [
    `${mark(printer, f.accepted ? 'pass' : 'fail')} ${printable(`${f.kind}  ${f.subject}${f.accepted ? '  (accepted)' : ''}`)}`,
    `    ${printable(f.why)}`,
    `    gets around: ${f.around.length === 0 ? 'no fence by itself' : f.around.join(', ')}`,
    ...(f.accepted ? [] : [`    closes it: ${printable(f.closes ?? 'nothing does')}`]),
  ])
  return [
    ...lines,
    `${printable(region)}: ${open.length} ways around the fences that are not accepted, ${findings.length - open.length} accepted`,
    ...(open.length > 0 ? [`next:  homeregion fence audit ${printable(region)} --sql`] : []),
  ].join('\n')
}

/** What had nothing to be tried on stands in no way, and was not seen to hold either. */
function observationLine({ verdict, observer, observed, required, facts }: Observation, printer: Printer): string {
  const sign = verdict === 'pass' && facts?.['probes'] === 0 ? '--' : mark(printer, verdict)
  return `  ${sign} ${fittedAfter(printer, printable(`${required}: ${observed} (${observer})`), 5)}`
}

function cell(text: string): string {
  const line = text.replace(/\s+/g, ' ')
  return line.length > CELL ? `${line.slice(0, CELL - 3)}...` : line
}
