import { setTimeout as wait } from 'node:timers/promises'
import type { HomeregionError } from '../../domain/errors.ts'
import type { FaultPoint } from '../../domain/ports.ts'
import { missingRight } from './acl-bindings.ts'
import type { Brokers } from './broker-requests.ts'
import { protocolError } from './kafka-client.ts'

const TRANSACTION_COORDINATOR = 1
// Stays with the id until its next producer brings its own; the shortest that is surely allowed is of no use to anybody.
const TRANSACTION_TIMEOUT_MS = 10_000
const POLL_MS = 20
// Taken by somebody else in between three times over: not a zombie that comes late but a producer that lives.
const MOST_ATTEMPTS = 3

/** The coordinator aborts what is open, or is just moving, or has not yet loaded its log: each passes. */
const PASSING: ReadonlySet<string | null> = new Set([
  'CONCURRENT_TRANSACTIONS',
  'GROUP_LOAD_IN_PROGRESS',
  'GROUP_COORDINATOR_NOT_AVAILABLE',
  'NOT_COORDINATOR_FOR_GROUP',
])

export type Takeover = { readonly transactionalId: string; readonly producerId: string; readonly epoch: number }

/**
 * Makes every present producer of the id a zombie and aborts its open transaction. Done twice: the second epoch is the first one's successor
 * only when nobody took the id in between. @throws `privilege-missing`, `kafka-unreachable`; null when somebody else keeps taking it
 */
export async function takeOver(brokers: Brokers, transactionalId: string, withinMs: number, fault: FaultPoint): Promise<Takeover | null> {
  const end = performance.now() + withinMs
  for (let attempt = 0; attempt < MOST_ATTEMPTS; attempt += 1) {
    const first = await initProducerId(brokers, transactionalId, end)
    await fault('fence:kafka:between-takeovers')
    const second = await initProducerId(brokers, transactionalId, end)
    // When epochs run out the id gets a new producer id, which this takes for somebody else: one more attempt settles it.
    if (second.producerId === first.producerId && second.producerEpoch === first.producerEpoch + 1) {
      return { transactionalId, producerId: second.producerId, epoch: second.producerEpoch }
    }
  }
  return null
}

async function initProducerId(
  brokers: Brokers,
  transactionalId: string,
  end: number,
): Promise<{ readonly producerId: string; readonly producerEpoch: number }> {
  for (;;) {
    try {
      const coordinator = await findCoordinator(brokers, transactionalId)
      return await brokers.on(coordinator, 'InitProducerId', async broker => {
        return await broker.initProducerId({ transactionalId, transactionTimeout: TRANSACTION_TIMEOUT_MS })
      })
    } catch (error) {
      const type = protocolError(error)
      if (type === 'TRANSACTIONAL_ID_AUTHORIZATION_FAILED') throw missingWrite(brokers, transactionalId, error)
      if (!PASSING.has(type) || performance.now() > end) throw error
      await wait(POLL_MS)
    }
  }
}

async function findCoordinator(brokers: Brokers, transactionalId: string): Promise<number> {
  const [any = -1] = brokers.alive
  const { coordinator } = await brokers.on(any, 'FindCoordinator', async broker => {
    return await broker.findGroupCoordinator({ groupId: transactionalId, coordinatorType: TRANSACTION_COORDINATOR })
  })
  return coordinator.nodeId
}

// Handed out from 0 upwards: nobody has it, so that the coordinator refuses the call even to whoever may make it.
const NOBODY = '9223372036854775806'

/**
 * Asks to end a transaction that does not exist. Whether this login may is decided first: null when it may not, else the name of the
 * refusal that follows.
 */
export async function mayEndTransaction(brokers: Brokers, broker: number, transactionalId: string): Promise<string | null> {
  try {
    await brokers.on(broker, 'EndTxn', async b => {
      return await b.endTxn({ transactionalId, producerId: NOBODY, producerEpoch: 0, transactionResult: false })
    })
    return 'NONE'
  } catch (error) {
    const type = protocolError(error)
    if (type === 'TRANSACTIONAL_ID_AUTHORIZATION_FAILED') return null
    if (type === null) throw error
    return type
  }
}

export function missingWrite(brokers: Brokers, transactionalId: string, cause?: unknown): HomeregionError {
  return missingRight(brokers, `WRITE on transactional id ${transactionalId}`, cause)
}
