import type { InFlightWrite } from '../../../domain/boundary.ts'
import type { Config, RegionConfig } from '../../../domain/config.ts'
import { formatMs } from '../../../domain/duration.ts'
import { HomeregionError } from '../../../domain/errors.ts'
import { BOUNDARY_FENCE, type Fence, type FenceStatus, type FenceStep } from '../../../domain/fence.ts'
import { alreadyStood, askedAgain } from '../../../domain/fence-wish.ts'
import type { FaultPoint } from '../../../domain/ports.ts'
import { errorText, type Secrets } from '../../postgres/connection.ts'
import { sqlstate } from '../boundary-error.ts'
import { loginRole } from '../quoting.ts'
import { createRegionFence, type FenceReading } from '../region-fence.ts'
import { codedFor, operatorSessions } from '../region-session.ts'
import { createWriteProbe } from '../write-probe.ts'
import { proveBoundary } from './boundary-proof.ts'
import { named } from './open-transaction.ts'

/** Rounds of waiting and sweeping: openings that did not see the fence end in the first, those who wrote their keys in the second. */
const ROUNDS = 3

/** The region's boundary, closed for all keys at once. */
export function createBoundaryFence(region: RegionConfig, config: Config, secrets: Secrets, fault: FaultPoint): Fence {
  const session = operatorSessions(region, config, secrets)
  const changes = session('homeregion fence')
  const reads = session('homeregion observer')
  const probe = createWriteProbe(region, config, secrets)
  const boundary = createRegionFence(changes, region.name)
  const known = createRegionFence(reads, region.name)
  // A proof's own wait: it stands neither behind a wait of `apply` nor in front of what is read.
  const waits = session('homeregion in-flight')
  const timeoutMs = config.policy.callTimeoutMs

  const coded = codedFor(region.name)

  /** A key that is being moved holds its rows for an instant; then the whole change is made again. */
  const repeated = async <T>(deadline: number, what: string, work: () => Promise<T>): Promise<T> => {
    for (;;) {
      try {
        return await work()
      } catch (error) {
        if (!['55P03', '40P01'].includes(sqlstate(error) ?? '')) throw error
        if (performance.now() >= deadline)
          throw await failed(`${what} was held up by changes of its keys for ${formatMs(timeoutMs)}`, error)
      }
    }
  }

  /** Says what stands by reading it back, or that it could not be read. */
  const failed = async (fact: string, cause: unknown, fields: Record<string, unknown> = {}): Promise<HomeregionError> => {
    const state = await known.read().then(stands, (error: unknown) => `What stands could not be read back: ${errorText(error)}.`)
    return new HomeregionError(
      'fence-failed',
      { fact: `${region.name} boundary: ${fact}`, state, next: `homeregion fence status ${region.name}` },
      { cause, fields: { region: region.name, fence: BOUNDARY_FENCE, ...fields } },
    )
  }

  const readBack = async (): Promise<FenceReading> => await known.read()

  return {
    region: region.name,
    name: BOUNDARY_FENCE,
    kind: 'boundary',
    plan: async direction => await coded(async () => plan(region, await readBack(), direction, timeoutMs)),
    apply: async cause =>
      await coded(async () => {
        const deadline = performance.now() + timeoutMs
        const before = (await known.read()).standing
        // Dying before its commit: nothing changed. After it: no key may be written here, on record as applying; applying again finishes it.
        await repeated(deadline, 'it', async () => await boundary.fence(cause))
        await fault('fence:boundary:committed')
        for (let round = 1; ; round += 1) {
          const open = await boundary.inFlight(deadline - performance.now())
          if (open.length > 0)
            throw await failed(`${transactions(open)} that wrote before the fence: ${open.map(named).join('; ')}`, undefined, {
              inFlight: open,
            })
          await fault('fence:boundary:waited')
          const swept = await repeated(deadline, 'it', async () => await boundary.settle())
          await fault('fence:boundary:settled')
          if (swept === 0) break
          if (round === ROUNDS) throw await failed(`${swept} keys were made writable under it once more`, undefined)
        }
        const now = await readBack()
        if (now.standing?.state !== 'applied' || now.writableKeys > 0)
          throw await failed('it did not stand when it was read back', undefined)
        return [
          `homeregion.fence: applied since ${now.standing.since ?? '?'}`,
          'keys writable: 0',
          'transactions that wrote before: 0',
          ...alreadyStood(before, cause),
        ]
      }),
    lift: async (_, asked) =>
      await coded(async () => {
        await fault('fence:boundary:before-lift')
        // One commit: the fence and every key's right to be written come and go together.
        const opened = await repeated(performance.now() + timeoutMs, 'its lift', async () => await boundary.lift(asked))
        if (opened === null) {
          const { standing } = await readBack()
          throw standing === null
            ? await failed('it stood for another wish than this lift was allowed for, and is gone by now', undefined)
            : askedAgain({ region: region.name, name: BOUNDARY_FENCE }, standing)
        }
        await fault('fence:boundary:lifted')
        const now = await readBack()
        if (now.standing !== null) throw await failed('it was applied again when it was read back', undefined)
        return ['homeregion.fence: no row', `keys writable: ${now.writableKeys}`]
      }),
    verify: async () => await proveBoundary({ region, config, fence: known, waiting: createRegionFence(waits, region.name), reads, probe }),
    status: async () => await readBack().then(status, unread),
    close: async () => void (await Promise.all([changes.close(), reads.close(), waits.close(), probe.close()])),
  }
}

function plan(region: RegionConfig, now: FenceReading, direction: 'apply' | 'lift', timeoutMs: number): readonly FenceStep[] {
  const place = `${region.name} database as ${loginRole(region.database.operator)}`
  const name = `'${region.name.replaceAll("'", "''")}', '${BOUNDARY_FENCE}'`
  if (direction === 'lift')
    return now.standing === null
      ? []
      : [
          {
            place,
            text: `select homeregion.lift_region(${name}, ${now.standing.asked})`,
            why: 'Makes every key writable that is ACTIVE with its home here, in one commit.',
          },
        ]
  if (now.standing?.state === 'applied' && now.writableKeys === 0) return []
  const keys = `${now.writableKeys} ${now.writableKeys === 1 ? 'key' : 'keys'}`
  return [
    {
      place,
      text: `select homeregion.fence_region(${name}, <reason>, <user>, <run>)`,
      why: `Deletes ${keys} from homeregion.writable and records the fence, in one commit: from it on every write here is refused.`,
    },
    {
      place,
      text: `select * from homeregion.region_in_flight(${name.split(',')[0] ?? ''}, ${timeoutMs})`,
      why: 'Waits for transactions that wrote before; ends none of them.',
    },
    {
      place,
      text: `select homeregion.settle_region(${name})`,
      why: 'Records that all of those have ended, and that they left no key writable.',
    },
  ]
}

function status({ standing, writableKeys }: FenceReading): FenceStatus {
  if (standing === null) return { state: 'lifted', since: null, cause: null, asked: null, holds: [] }
  const waits =
    standing.state === 'applied' ? 'transactions that wrote before: 0 when it was applied' : 'transactions that wrote before: not known'
  return { ...standing, holds: [`keys writable: ${writableKeys}`, waits] }
}

function unread(error: unknown): FenceStatus {
  return { state: 'unknown', since: null, cause: null, asked: null, holds: [errorText(error)] }
}

function stands({ standing, writableKeys }: FenceReading): string {
  if (standing === null) return 'The fence does not stand, as read back.'
  return `The fence stands since ${standing.since ?? '?'} as read back (${writableKeys} keys writable): no new write is admitted.`
}

function transactions(open: readonly InFlightWrite[]): string {
  return open.length === 1 ? '1 transaction is open' : `${open.length} transactions are open`
}
