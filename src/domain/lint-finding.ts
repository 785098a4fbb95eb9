import type { CheckName } from './checks.ts'
import type { Runbook, Step } from './runbook.ts'

/** What a rule of the linter finds. `path` leads to the place in the file. */
export type Finding = { readonly path: readonly (string | number)[]; readonly message: string; readonly hint: string }

/** Index of the first step with each ownership action; -1 where there is none. */
export type Places = { readonly drain: number; readonly fence: number; readonly isolate: number; readonly activate: number }

export type Rule = (runbook: Runbook, at: Places) => readonly Finding[]

export function finding(step: number, field: string, message: string, hint: string): Finding {
  return { path: ['steps', step, field], message, hint }
}

/** Only a gate counts: a watch reports, and lets the run go on. */
export function passed(check: CheckName, steps: readonly Step[]): boolean {
  return steps.some(step => step.gate.some(use => use.check === check))
}

export function absent(checks: readonly CheckName[], steps: readonly Step[]): readonly CheckName[] {
  return checks.filter(check => !passed(check, steps))
}
