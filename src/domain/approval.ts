export type ApprovalVerdict = 'approved' | 'rejected'

export type Approval = {
  readonly runId: string
  readonly verdict: ApprovalVerdict
  /** The control-plane login (session_user) that said it; never the operating system's user. */
  readonly approver: string
  readonly reason: string
  /** Given against the rules of who may: counts as enough by itself, and stands out in every report. */
  readonly breakGlass: boolean
  /** By the login that began the run: only by breaking the glass. */
  readonly byStarter: boolean
  /** ISO 8601, control plane's clock. */
  readonly at: string
}

/** Who approves forced failovers, as `init` put it in force: this counts, whatever the file at hand says. */
export type ApprovalPolicy = {
  readonly approvers: readonly string[]
  readonly needed: number
  readonly aboveKeys: number
  /** ISO 8601, control plane's clock. */
  readonly since: string
  /** The login that began the run, or this one where no run is meant: it may approve by breaking the glass only. */
  readonly starter: string
}

/** Those whose word counts: of this run, or of one that this login would begin. */
export function mayApprove({ approvers, starter }: Pick<ApprovalPolicy, 'approvers' | 'starter'>): readonly string[] {
  return approvers.filter(name => name !== starter)
}

/** Whose word counts by now: as the control plane counts in the commit. */
export function tallyOf(
  { approvers, needed }: Pick<ApprovalPolicy, 'approvers' | 'needed'>,
  said: readonly Approval[],
): { readonly given: number; readonly enough: boolean; readonly glassBroken: boolean } {
  const yes = said.filter(a => a.verdict === 'approved')
  const glassBroken = yes.some(a => a.breakGlass)
  const given = yes.filter(a => approvers.includes(a.approver)).length
  return { given, enough: glassBroken || given >= needed, glassBroken }
}

/** `bob at …`, and loudly what was out of the ordinary. */
export function showVoice({ approver, at, breakGlass, byStarter }: Approval): string {
  return `${breakGlass ? 'BROKE THE GLASS: ' : ''}${approver}${byStarter ? ', who began the run,' : ''} at ${at}`
}

/** For a screen: who is to be asked. */
export function namesOfApprovers(policy: Pick<ApprovalPolicy, 'approvers' | 'starter' | 'needed'>): string {
  const names = mayApprove(policy)
  return names.length < policy.needed
    ? `${names.join(', ') || 'nobody is listed'}: too few, so only broken glass will do`
    : names.join(', ')
}
