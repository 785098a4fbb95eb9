import type { ApprovalVerdict } from '../../domain/failover.ts'
import type { CliContext } from '../context.ts'
import { printable } from '../render/error.ts'
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
  const loud = given.breakGlass ? ' BREAKING THE GLASS' : ''
  context.out.line(printable(`run ${runId} ${given.verdict} by ${given.approver}${loud} at ${given.at} (read back from the control plane)`))
  context.out.line(`next:  homeregion ${verdict === 'approved' ? 'resume' : 'run show'} ${runId}`)
}
