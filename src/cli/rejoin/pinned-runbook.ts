import { loadRunbook, parseRunbook } from '../../adapters/files/runbook-file.ts'
import { HomeregionError, isHomeregionError } from '../../domain/errors.ts'
import type { ControlPlane } from '../../domain/ports.ts'
import type { RejoinRunbook } from '../../domain/rejoin.ts'
import type { PinnedRunbook, Runbook } from '../../domain/runbook.ts'
import { notInExile, openExile } from '../../engine/lost-keys.ts'

export type RunbookFlags = { readonly runbook?: string; readonly replaceRunbook?: boolean }

/** `note`: what the operator should know of where it came from; null: the shipped one. */
export type Followed = { readonly runbook: Runbook; readonly done: readonly string[]; readonly note: string }

/**
 * The runbook that a region comes back by: the one that its exile has pinned, else the one asked for, else the shipped one, which is pinned before the
 * first step. @throws `runbook-invalid`, `plan-stale` when another one is pinned and it was not said that it is to be replaced
 */
export async function followedRunbook(controlPlane: ControlPlane, region: string, flags: RunbookFlags, cwd: string): Promise<Followed> {
  // A region in no exile pins nothing, and is told so whatever runbook was asked for.
  if ((await openExile(controlPlane, region)) === null) throw notInExile(region)
  const asked = flags.runbook === undefined ? null : requireRejoin(loadRunbook(flags.runbook, cwd))
  const pinned = await controlPlane.rejoinRunbook(region)
  if (pinned === null) return await pin(controlPlane, region, asked ?? requireRejoin(loadRunbook('rejoin', cwd)), 0)
  if (asked === null || asked.sha256 === pinned.sha256) return readBack(region, pinned)
  if (flags.replaceRunbook !== true) throw otherPinned(region, pinned, asked)
  return await pin(controlPlane, region, asked, pinned.nth)
}

async function pin(controlPlane: ControlPlane, region: string, asked: PinnedRunbook, after: number): Promise<Followed> {
  const pinned = await controlPlane.pinRejoinRunbook(region, asked, after)
  if (pinned.sha256 !== asked.sha256) throw otherPinned(region, pinned, asked)
  return readBack(region, pinned)
}

/** As it was pinned, whatever became of the file, and of the runbook that this version ships. */
function readBack(region: string, pinned: RejoinRunbook): Followed {
  try {
    const { runbook } = requireRejoin(parseRunbook(pinned.text, pinned.origin))
    const note = `runbook ${pinned.name} (${pinned.origin}, ${pinned.sha256.slice(0, 12)}), pinned ${pinned.pinnedAt} by ${pinned.pinnedBy}`
    return { runbook, done: pinned.done, note }
  } catch (error) {
    if (!isHomeregionError(error, 'runbook-invalid')) throw error
    throw new HomeregionError(
      'runbook-invalid',
      {
        fact: `the runbook that ${region} was to come back by (pinned ${pinned.pinnedAt}) is not valid to this version: ${error.text.fact}`,
        state: `${region} stays in exile; nothing was changed. homeregion fence apply ${region} closes it meanwhile.`,
        next: `homeregion rejoin ${region} --reason TEXT --runbook rejoin --replace-runbook`,
      },
      { cause: error, fields: error.fields },
    )
  }
}

function requireRejoin(pinned: PinnedRunbook): PinnedRunbook {
  const { name, intent } = pinned.runbook
  if (intent === 'rejoin') return pinned
  throw new HomeregionError('usage', {
    fact: `runbook ${name} has the intent ${intent}: it moves keys, and brings no region back`,
    state: 'Nothing was changed.',
    next: 'homeregion runbook show rejoin',
  })
}

function otherPinned(region: string, pinned: RejoinRunbook, asked: PinnedRunbook): HomeregionError {
  return new HomeregionError(
    'plan-stale',
    {
      fact: `the return of ${region} was begun with runbook ${pinned.name} (${pinned.sha256.slice(0, 12)}, pinned ${pinned.pinnedAt} by ${pinned.pinnedBy}); ${asked.origin} is another (${asked.sha256.slice(0, 12)})`,
      state: 'Nothing was changed.',
      next: 'the same command without --runbook goes on with the pinned one; with --replace-runbook it follows the other, and does its own steps anew',
    },
    { fields: { region, pinned: pinned.sha256, asked: asked.sha256 } },
  )
}
