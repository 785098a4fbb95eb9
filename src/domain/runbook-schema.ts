import * as z from 'zod/mini'
import { CHECKS, type CheckName, type CheckSpec, checkSpec } from './checks.ts'
import { DURATION_PATTERN, parseDuration } from './duration.ts'
import {
  type ActionUse,
  type CheckUse,
  INTENTS,
  OWNERSHIP_ACTIONS,
  REJOIN_ACTIONS,
  RUNBOOK_API,
  type Runbook,
  type Step,
} from './runbook.ts'
import { PRINTABLE } from './unprintable.ts'

/** The shape of a runbook file, free of transforms: types, messages and the JSON Schema of the editors are made of the same lines. */
export const IDENTIFIER = /^[a-z][a-z0-9-]{0,39}$/

const identifier = z.string().check(z.regex(IDENTIFIER, 'must be lower-case letters, digits and -, a letter first, at most 40'))
const line = z
  .string()
  .check(
    z.minLength(1, { error: 'must not be empty', abort: true }),
    z.maxLength(200, 'is longer than 200 characters'),
    z.regex(PRINTABLE, 'must be one line without control characters'),
  )
const duration = z.string().check(z.regex(DURATION_PATTERN, 'must be a number with its unit: 500ms, 30s, 5m'))
const count = z.int().check(z.minimum(0, 'must not be negative'), z.maximum(1_000_000_000))

const word = z.string().check(z.minLength(1, 'must not be empty'), z.maxLength(4_000, 'is longer than 4000 characters'))
const command = z
  .strictObject({ command: z.array(word).check(z.minLength(1, 'needs at least the program')), timeout: z._default(duration, '30s') })
  .register(z.globalRegistry, { description: 'argv, never a shell string; the values of the run arrive as HOMEREGION_* variables.' })

const ACTION_SHAPE = {
  fence: z.optional(
    z
      .strictObject({ region: z.array(identifier).check(z.minLength(1, 'needs at least one fence'), z.maxLength(20)) })
      .register(z.globalRegistry, { description: 'Fences of the whole source region, by their names in the configuration.' }),
  ),
  exec: z.optional(command),
  notify: z.optional(command),
  http: z.optional(
    z.strictObject({
      method: z._default(z.enum(['GET', 'POST', 'PUT']), 'POST'),
      url: z.string().check(z.regex(/^https?:\/\/[^\s@]+$/, 'must be an http:// or https:// URL without a login')),
      timeout: z._default(duration, '10s'),
      expectStatus: z._default(z.int().check(z.minimum(100), z.maximum(599)), 200),
    }),
  ),
  sql: z.optional(
    z.strictObject({
      region: z.enum(['source', 'target']),
      statement: z.string().check(z.minLength(1, 'must not be empty'), z.maxLength(10_000, 'is longer than 10000 characters')),
      /** Bound to $1, $2, … in this order. */
      parameters: z._default(z.array(z.enum(['key', 'run', 'source', 'target', 'epoch'])), []),
    }),
  ),
  pause: z.optional(duration),
}

/** Actions that are written as a mapping, because they need more than their name. */
export const MAPPING_ACTIONS = Object.keys(ACTION_SHAPE)

function exactlyOne(what: string) {
  return z.refine<Record<string, unknown>>(
    entry => Object.values(entry).filter(given => given !== undefined).length === 1,
    `must name exactly one ${what}`,
  )
}

const ONE = { minProperties: 1, maxProperties: 1 }

const action = z.union([
  z.enum([...OWNERSHIP_ACTIONS, ...REJOIN_ACTIONS]),
  z.strictObject(ACTION_SHAPE).check(exactlyOne('action')).register(z.globalRegistry, ONE),
])

function parameters(spec: CheckSpec) {
  const shape = Object.entries(spec.parameters).map(
    ([name, { kind }]) => [name, z.optional(kind === 'duration' ? duration : count)] as const,
  )
  return z.optional(z.strictObject(Object.fromEntries(shape)))
}

const checkNames = CHECKS.map(check => check.name)

const check = z.union([
  z.enum(checkNames).register(z.globalRegistry, {
    // Editors show it beside the list of names.
    description: CHECKS.map(({ name, sentence }) => `${name}: ${sentence}`).join('\n'),
  }),
  z
    .strictObject(Object.fromEntries(CHECKS.map(spec => [spec.name, parameters(spec)])))
    .check(exactlyOne('check'))
    .register(z.globalRegistry, ONE),
])

const checks = z.array(check).check(z.minLength(1, 'must not be empty'), z.maxLength(50, 'has more than 50 checks'))

const step = z.strictObject({
  id: identifier,
  title: line,
  action: z.optional(action),
  gate: z.optional(checks),
  within: z._default(duration, '30s'),
  confirm: z.optional(z.enum(['plain', 'type-key'])),
  watch: z.optional(checks),
  for: z.optional(duration),
})

export const runbookSchema = z.strictObject({
  apiVersion: z.literal(RUNBOOK_API),
  kind: z.literal('Runbook'),
  name: identifier,
  intent: z.enum(INTENTS),
  title: line,
  steps: z.array(step).check(z.minLength(1, 'must not be empty'), z.maxLength(100, 'has more than 100 steps')),
})

export type RunbookFile = z.output<typeof runbookSchema>

/** Draft 7, which the YAML language server of the editors reads. */
export function runbookJsonSchema(): unknown {
  return { title: 'homeregion runbook', ...z.toJSONSchema(runbookSchema, { io: 'input', target: 'draft-7' }) }
}

/** The runbook of a file that fits the schema: shorthands written out, defaults filled in, durations in milliseconds. */
export function toRunbook(file: RunbookFile): Runbook {
  return { name: file.name, intent: file.intent, title: file.title, steps: file.steps.map(toStep) }
}

function toStep(step: RunbookFile['steps'][number]): Step {
  return {
    id: step.id,
    title: step.title,
    action: step.action === undefined ? null : toAction(step.action),
    gate: (step.gate ?? []).map(toCheck),
    watch: (step.watch ?? []).map(toCheck),
    withinMs: milliseconds(step.within),
    forMs: step.for === undefined ? 0 : milliseconds(step.for),
    confirm: step.confirm ?? null,
  }
}

function toAction(written: z.output<typeof action>): ActionUse {
  if (typeof written === 'string') return { kind: written }
  if (written.exec !== undefined) return { kind: 'exec', command: written.exec.command, timeoutMs: milliseconds(written.exec.timeout) }
  if (written.notify !== undefined)
    return { kind: 'notify', command: written.notify.command, timeoutMs: milliseconds(written.notify.timeout) }
  if (written.http !== undefined) {
    const { method, url, timeout, expectStatus } = written.http
    return { kind: 'http', method, url, timeoutMs: milliseconds(timeout), expectStatus }
  }
  if (written.fence !== undefined) return { kind: 'fence-region', fences: written.fence.region }
  if (written.sql !== undefined) return { kind: 'sql', ...written.sql }
  return { kind: 'pause', forMs: milliseconds(written.pause ?? '') }
}

type Given = Readonly<Record<string, string | number | undefined>> | undefined

function toCheck(written: z.output<typeof check>): CheckUse {
  const [name, given]: readonly [string, Given] = typeof written === 'string' ? [written, {}] : (Object.entries(written)[0] ?? ['', {}])
  const spec = checkSpec(name as CheckName)
  const filled = Object.entries(spec.parameters).map(([parameter, { default: fallback }]) => [
    parameter,
    value(given?.[parameter]) ?? fallback,
  ])
  return { check: spec.name as CheckName, parameters: Object.fromEntries(filled) as Record<string, number> }
}

function value(written: string | number | undefined): number | undefined {
  return typeof written === 'string' ? milliseconds(written) : written
}

function milliseconds(written: string): number {
  const ms = parseDuration(written)
  if (ms === null) throw new RangeError(`not a duration: ${written}`)
  return ms
}
