import { type Approval, type ApprovalVerdict, mayApprove, namesOfApprovers, showVoice, tallyOf } from '../../domain/approval.ts'
import { isOpen, OPEN_STATES, type Run } from '../../domain/journal.ts'
import type { ControlPlane } from '../../domain/ports.ts'
import type { CliContext } from '../context.ts'
import { printable } from '../render/error.ts'
import { fitted } from '../render/wrapped.ts'
import { rivalsOf } from './prepare.ts'
import { usage } from './select.ts'

/** Who says it is the control plane's login, which no flag can change. */
export async function say(
  context: CliContext,
  runId: string,
  verdict: ApprovalVerdict,
  flags: { readonly reason?: string; readonly breakGlass?: boolean },
): Promise<void> {
  const format = context.format('json')
  const reason = flags.reason?.trim() ?? ''
  const breakGlass = flags.breakGlass === true
  if (breakGlass && reason === '')
    throw usage('--break-glass needs --reason TEXT', `homeregion approve ${runId} --break-glass --reason TEXT`)
  const { controlPlane } = await context.connect()
  const given = await controlPlane.approve(runId, verdict, reason, breakGlass)
  if (format === 'json') return context.out.line(JSON.stringify(given))
  const next = verdict === 'approved' ? await afterApproval(controlPlane, runId) : [`next:  homeregion abort ${runId}`]
  for (const line of [...spoken(given, reason), ...next]) context.out.line(fitted(context.out, printable(line), 7))
}

function spoken(given: Approval & { readonly saidBefore: boolean }, reason: string): readonly string[] {
  const voice = `run ${given.runId} ${given.verdict}: ${showVoice(given)}`
  if (!given.saidBefore) return [`${voice} (read back from the control plane)`]
  const first = given.reason === '' ? 'no reason' : given.reason
  return [`${voice}, and that first word stands: ${first}`, ...(reason === given.reason ? [] : ['state: The new reason was not recorded.'])]
}

/** What is missing still, and whether anybody has to type anything then. */
async function afterApproval(controlPlane: ControlPlane, runId: string): Promise<readonly string[]> {
  const [run, policy, said, open] = await Promise.all([
    controlPlane.run(runId),
    controlPlane.approvalPolicy(runId),
    controlPlane.approvals(runId),
    controlPlane.runs({ states: OPEN_STATES, limit: 50 }),
  ])
  if (run === null || !isOpen(run)) return []
  const { given, enough, glassBroken } = tallyOf(policy, said)
  const missing = mayApprove(policy).filter(name => !said.some(a => a.approver === name))
  const keys = run.moves.map(m => m.key)
  const others = rivalsOf(open, keys).filter(r => r.run.id !== runId)
  return [
    ...others.map(r => `note:  run ${r.run.id} is failing over ${r.keys} of its keys too: whichever commits first takes them`),
    `state: ${glassBroken ? 'The glass is broken: no other approval is needed' : `${given} of ${policy.needed} approvals`}.`,
    enough ? goesOn(run) : `next:  homeregion approve ${runId}   (${missing.join(', ') || namesOfApprovers(policy)})`,
  ]
}

function goesOn({ id, holder, leaseAlive }: Run): string {
  if (!leaseAlive || holder === null) return `next:  homeregion resume ${id}`
  return `next:  homeregion status   (nothing else: it goes on by itself in pid ${holder.pid} of ${holder.user}@${holder.host})`
}
