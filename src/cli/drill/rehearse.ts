import type { DrillSite } from '../../../sandbox/drill-site.ts'
import { loadConfig } from '../../adapters/files/config-file.ts'
import { HomeregionError } from '../../domain/errors.ts'
import type { ReconcileItem } from '../../domain/failover.ts'
import { judgeRehearsal, type Rehearsal, type RehearsalFacts, type RehearsedLoss } from '../../domain/rehearsal.ts'
import { composeFarConsumer } from '../compose-drill.ts'
import { needed, StepFailed, tried } from './site-command.ts'

/** Shows one step while it is done, and what it took. */
export type Stages = { do<T>(title: string, work: () => Promise<T>): Promise<T> }

const [SOURCE, TARGET] = ['region-a', 'region-b']
const REASON = ['--reason', 'drill'] as const
/** Epochs of the keys: where they began, at the target, and back. */
const [BEFORE, AWAY, BACK] = [1, 2, 3]
const DARK_MS = 60_000
const WRITES_MS = 60_000
const RETURN_MS = 60_000

/** What is found out on the way; a step that fails leaves the rest unknown. */
type Found = { -readonly [K in keyof RehearsalFacts]: RehearsalFacts[K] }

/**
 * The forced failover from the disaster to the way back, by the commands a person types. @throws when the sandbox does not work, or was interrupted;
 * a command that does not do what it should is the rehearsal's finding.
 */
export async function rehearse(site: DrillSite, stages: Stages, objectiveMs: number): Promise<Rehearsal> {
  const began = performance.now()
  const found: Found = {
    ...{ source: SOURCE, target: TARGET, keys: site.keys.length, objectiveMs, tookMs: 0 },
    ...{
      recoveryMs: null,
      sinceAcknowledgedMs: null,
      loss: null,
      gaps: null,
      duplicates: null,
      overlaps: null,
      returnMs: null,
      failure: null,
    },
  }
  try {
    await stages.do(`two regions, an agent, writers on ${site.keys.length} keys of ${SOURCE}`, async () => await site.up())
    await allSteps(site, stages, found)
  } catch (error) {
    if (!(error instanceof StepFailed)) throw error
    found.failure = error.message
  }
  found.tookMs = Math.round(performance.now() - began)
  return judgeRehearsal(found)
}

async function allSteps(site: DrillSite, stages: Stages, found: Found): Promise<void> {
  await stages.do(`the Kafka of ${SOURCE} is gone, and its users write on`, async () => await site.cutOff())
  const darkAtMs = await stages.do(`${SOURCE} is dark: database and service are killed as well`, async () => await site.goDark())
  const { run, bound, acknowledgedAtMs } = await force(site, stages)
  const firstWriteAtMs = await stages.do(`users of every key write at ${TARGET}`, async () => await writesUnder(site, TARGET, AWAY))
  found.recoveryMs = Math.round(firstWriteAtMs - darkAtMs)
  found.sinceAcknowledgedMs = Math.round(firstWriteAtMs - acknowledgedAtMs)
  await stages.do(`${SOURCE} starts again, on what its disks hold`, async () => await site.comeBack())
  const items = await bringBack(site, stages, run)
  found.loss = { bound, ...lossOf(site, items, darkAtMs) }
  found.returnMs = await failBack(site, stages, run)
  await stages.do('every write that was acknowledged is held against both databases', async () => await holdAgainst(site, items, found))
}

/** Waits until nobody sees the source any more, owns the loss that is shown, and forces. */
async function force(site: DrillSite, stages: Stages) {
  const what = [...site.keys, '--from', SOURCE, '--to', TARGET, '--fence', 'lease']
  const plan = await stages.do(`homeregion plan failover   (until ${SOURCE} is dark long enough)`, async () => {
    const plans: Plan[] = []
    const dark = async () => {
      // Refused while somebody has seen the source a moment ago.
      const seen = await tried<Plan>(site, ['plan', 'failover', ...what], { unless: 'source-answers' })
      if (seen !== null) plans.push(seen)
      return seen !== null
    }
    await site.until(dark, DARK_MS)
    const [seen] = plans
    if (seen === undefined) throw new StepFailed(`${SOURCE} was killed and is not dark after ${DARK_MS / 1000} s`)
    return seen
  })
  const acknowledgedAtMs = performance.now()
  const forced = await stages.do(
    'homeregion failover --force --rpo-ack TOKEN',
    async () =>
      await needed<{ readonly run: string }>(site, [
        ...['failover', ...what, '--force', '--rpo-ack', plan.ackToken ?? '', '--observe', '0s', ...REASON],
        ...['--confirm-count', String(site.keys.length)],
      ]),
  )
  const { ms, writes } = plan.totals.unknown
  const bound: RehearsedLoss['bound'] = { ms: ms ?? 'any', writes: writes === null ? null : writes + (plan.totals.recoverable ?? 0) }
  return { run: forced.run, bound, acknowledgedAtMs }
}

type Plan = {
  readonly ackToken: string | null
  readonly totals: { readonly recoverable: number | null; readonly unknown: { readonly ms: number | null; readonly writes: number | null } }
}

/** When the last of the keys had its first write acknowledged there. */
async function writesUnder(site: DrillSite, region: string, epoch: number): Promise<number> {
  const firsts = () =>
    site.keys.map(key => site.acks().find(a => a.key === key && a.region === region && a.epoch === epoch && !a.replayed)?.ackedAtMs)
  if (await site.until(() => firsts().every(at => at !== undefined), WRITES_MS)) return Math.max(...firsts().map(at => at ?? 0))
  throw new StepFailed(`not every key was written at ${region} within ${WRITES_MS / 1000} s of its move`)
}

/** What only the source had is listed, let go of, and the source is brought level. @returns the list */
async function bringBack(site: DrillSite, stages: Stages, run: string): Promise<readonly ReconcileItem[]> {
  const decided: ReconcileItem[] = []
  for (let round = 1; round <= ROUNDS; round += 1) {
    const back = await stages.do(
      `homeregion rejoin ${SOURCE}   (${round === 1 ? 'fences it, and lists what only it has' : 'brings it level'})`,
      async () => await tried<object>(site, ['rejoin', SOURCE, '--yes', ...REASON], { unless: 'check-refused' }),
    )
    if (back !== null) return decided
    const dropped = await stages.do(
      `homeregion reconcile ${run} drop --all`,
      async () => await needed<{ readonly decided: readonly ReconcileItem[] }>(site, ['reconcile', run, 'drop', '--all', ...REASON]),
    )
    decided.push(...dropped.decided)
  }
  throw new StepFailed(`after ${ROUNDS} rounds of deciding there is still something that nobody has decided about`)
}

// The target is written on meanwhile, so that a second look may list what the first did not.
const ROUNDS = 3

function lossOf(site: DrillSite, items: readonly ReconcileItem[], darkAtMs: number): Omit<RehearsedLoss, 'bound'> {
  const lost = new Set(items.map(i => idempotencyOf(i)))
  const ages = site.acks().flatMap(a => (a.epoch === BEFORE && lost.has(a.idempotencyKey) ? [darkAtMs - a.ackedAtMs] : []))
  return { found: items.length, oldestMs: Math.round(Math.max(0, ...ages)) }
}

function idempotencyOf({ content }: ReconcileItem): string | undefined {
  return (content as { payload?: { idempotency?: { id?: string } } } | null)?.payload?.idempotency?.id
}

async function failBack(site: DrillSite, stages: Stages, run: string): Promise<number> {
  return await stages.do(`homeregion failback ${run}`, async () => {
    const began = performance.now()
    let beganAtMs = began
    let refusal = 'it was not tried'
    const heard = (fact: string) => {
      refusal = fact
    }
    const moved = async () => {
      beganAtMs = performance.now()
      const args = ['failback', run, '--confirm-count', String(site.keys.length), '--observe', '0s', ...REASON]
      // Its lease is granted again a moment after its exile is over; until then the preflight refuses, and nothing was moved.
      return (await tried<object>(site, args, { unless: 'check-refused', heard })) !== null
    }
    if (!(await site.until(moved, RETURN_MS))) throw new StepFailed(`failback was refused for ${RETURN_MS / 1000} s: ${refusal}`)
    await writesUnder(site, SOURCE, BACK)
    return Math.round(performance.now() - beganAtMs)
  })
}

async function holdAgainst(site: DrillSite, items: readonly ReconcileItem[], found: Found): Promise<void> {
  await site.stopWriters()
  const findings = await site.verify(new Set(items.flatMap(i => eventOf(i))))
  const { config } = loadConfig({ file: site.config, env: {}, cwd: site.dir, flags: {} })
  const consumer = composeFarConsumer(config, {})
  try {
    const keys = site.keys.map(key => ({ key, epoch: AWAY }))
    const far = await consumer.count(TARGET, SOURCE, keys)
    found.gaps = findings.lost.length + findings.versionGaps.length + far.gaps
    found.duplicates = findings.doubled.length + far.duplicates
    found.overlaps = findings.overlaps.length + findings.epochJumps.length
  } catch (error) {
    if (!(error instanceof HomeregionError)) throw error
    throw new StepFailed(error.text.fact)
  } finally {
    await consumer.close()
  }
}

function eventOf({ content }: ReconcileItem): readonly string[] {
  const id = (content as { eventId?: string } | null)?.eventId
  return id === undefined ? [] : [id]
}
