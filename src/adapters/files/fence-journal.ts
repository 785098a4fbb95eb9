import { isHomeregionError } from '../../domain/errors.ts'
import type { FenceEntry, FenceJournal } from '../../domain/fence.ts'
import type { ControlPlane } from '../../domain/ports.ts'
import { isReadOnly, sqlstate } from '../control-plane/refusals.ts'
import { createFenceJournalFile } from './fence-journal-file.ts'

/** Entries handed over at once; an outage of a day has fewer. */
const CHUNK = 200
/** Notes looked at of one fence. An application makes two, and each takes up what those before it said. */
const NOTES = 100

type Log = Pick<ControlPlane, 'logFence' | 'fenceLog' | 'fencesTold' | 'installation'>

/**
 * The fence log of one service on this machine, and its way into the control plane. No fence waits for that: whatever goes wrong on the way is
 * said (`refusal`), and the entries stay on this machine until the next command.
 */
export function createFenceJournal(folder: string, service: string, controlPlane: Log, address: string): FenceJournal {
  const file = createFenceJournalFile(folder, service, address)
  // A control plane that did not answer, or takes nothing, is not asked again by every entry of one command: an emergency has no time for it.
  let [silent, closed] = [false, false]
  let refusal: string | null = null
  let turn: Promise<unknown> = Promise.resolve()

  const noAnswer = (error: unknown): null => {
    silent ||= isHomeregionError(error, 'outcome-unknown') || (isHomeregionError(error, 'control-plane-unreachable') && !isReadOnly(error))
    refusal = textOf(error)
    return null
  }

  /** What the control plane answers, or null when it does not. */
  const asked = async <T>(ask: () => Promise<T>): Promise<T | null> => (silent ? null : await ask().catch(noAnswer))

  /** If the process dies before `handedOver` is written they are sent again, and the control plane leaves them as they are. */
  const send = async (entries: readonly FenceEntry[]): Promise<number> => {
    const [first, ...others] = entries
    if (first === undefined) return 0
    try {
      await controlPlane.logFence(entries)
    } catch (error) {
      if (!refusesEntry(error)) throw error
      // One of them will never be taken. The others are not to wait for it.
      if (others.length > 0) {
        const half = Math.ceil(entries.length / 2)
        return (await send(entries.slice(0, half))) + (await send(entries.slice(half)))
      }
      await file.refused(first, `the control plane refuses them (${textOf(error)})`)
      return 0
    }
    await file.handedOver(entries)
    return entries.length
  }

  const push = async (again: boolean): Promise<number | null> => {
    if (silent || closed) return null
    try {
      const first = await file.read()
      // Asked with nothing to hand over too: an emergency's entries are to be known as this control plane's when its replica has taken over, and
      // not as those of the one that answered at this address before.
      if (first.pending.length + first.aside.length === 0 && first.installation !== null && !again) return 0
      // What was made for another one is not handed over, whoever has taken its address meanwhile.
      await file.learn(await controlPlane.installation())
      const { pending } = await file.read()
      let handed = 0
      for (let i = 0; i < pending.length; i += CHUNK) handed += await send(pending.slice(i, i + CHUNK))
      refusal = null
      return handed
    } catch (error) {
      closed = true
      return noAnswer(error)
    }
  }

  const journal: FenceJournal = {
    file: file.path,
    keep: async added => {
      await file.keep(added)
    },
    handOver: async (again = false) => {
      if (again) [silent, closed] = [false, false]
      const next = async () => await push(again)
      const mine = turn.then(next, next)
      turn = mine.catch(() => undefined)
      return await mine
    },
    refusal: () => refusal,
    pending: async () => (await file.read()).pending,
    aside: async () => (await file.read()).aside,
    notes: async (region, fence) => {
      // Handed over first: the order in which notes reach the control plane is the order that counts.
      await journal.handOver()
      const told = await asked(() => controlPlane.fenceLog({ region, fence, events: ['noted'], limit: NOTES }))
      const { all, pending, refused } = await file.read()
      const mine = (entry: FenceEntry) => entry.event === 'noted' && entry.region === region && entry.fence === fence
      if (told === null) return all.filter(mine)
      const here = [...refused, ...pending].filter(e => mine(e) && !told.some(t => t.id === e.id))
      // What this machine could not hand over counts too: one that was refused as old, the others as newest.
      return [...here.filter(e => !pending.includes(e)), ...told.toReversed(), ...here.filter(e => pending.includes(e))]
    },
    told: async () => {
      const handed = await journal.handOver()
      const told = handed === null ? null : await asked(() => controlPlane.fencesTold())
      if (told !== null) return { entries: told, from: 'control plane' }
      const { all } = await file.read()
      const newest = new Map(all.filter(e => e.event !== 'noted').map(e => [`${e.region} ${e.fence}`, e]))
      return { entries: [...newest.values()], from: 'this machine' }
    },
  }
  return journal
}

/** The entry is at fault (its data, or a rule of the table), not the control plane: it would be refused for ever. */
function refusesEntry(error: unknown): boolean {
  return /^(22|23|54)/.test(sqlstate(error) ?? '')
}

function textOf(error: unknown): string {
  return isHomeregionError(error) ? error.text.fact : error instanceof Error ? error.message : String(error)
}
