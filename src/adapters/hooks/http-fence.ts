import type { FenceConfig, HttpCall, RegionConfig } from '../../domain/config.ts'
import type { Fence, FenceCause, FenceNotes } from '../../domain/fence.ts'
import type { FaultPoint } from '../../domain/ports.ts'
import { redact } from '../system/redaction.ts'
import type { Secrets } from '../system/secrets.ts'
import { createNotedFence } from './noted-fence.ts'

type HttpFence = Extract<FenceConfig, { kind: 'http' }>

/** Answers that say something of the caller, his request or the service, and nothing of the fence. */
const SAYS_NOTHING = new Set([400, 401, 403, 405, 406, 407, 408, 411, 413, 414, 415, 421, 425, 426, 429, 431])

/** Nor does an answer on the way (1xx), one that sends elsewhere (3xx), or a service that is broken (5xx). */
function saysNothing(status: number | null): boolean {
  return status === null || status < 200 || (status >= 300 && status < 400) || status >= 500 || SAYS_NOTHING.has(status)
}

/** A fence by an API of the operators' own. Secrets stand in headers only; an address is shown without its query, which could hold one. */
export function createHttpFence(
  region: RegionConfig,
  fence: HttpFence,
  secrets: Secrets,
  notes: FenceNotes,
  fault: FaultPoint,
  now: () => string,
): Fence {
  const call = async (what: HttpCall, cause: FenceCause | null): Promise<{ status: number | null; said: string }> => {
    const headers: Record<string, string> = { 'content-type': 'application/json' }
    for (const [name, reference] of Object.entries(fence.headers)) headers[name] = await secrets.read(reference)
    const body = { region: region.name, fence: fence.name, reason: cause?.reason ?? null, by: cause?.by ?? null, run: cause?.runId ?? null }
    try {
      const answer = await fetch(what.url, {
        method: what.method,
        headers,
        signal: AbortSignal.timeout(fence.timeoutMs),
        // An answer from elsewhere says nothing of this fence, and our headers must not travel there.
        redirect: 'manual',
        ...(what.method === 'GET' ? {} : { body: JSON.stringify(body) }),
      })
      // Never read: however much it sends, only its status counts.
      await answer.body?.cancel()
      return { status: answer.status, said: `${shown(what)} answered ${answer.status}` }
    } catch (error) {
      return { status: null, said: `${shown(what)} did not answer: ${redact(reason(error, fence.timeoutMs))}` }
    }
  }
  const carriedOut = async (what: HttpCall, cause: FenceCause) => {
    const { status, said } = await call(what, cause)
    return { ok: status === what.expectStatus, said: status === what.expectStatus ? said : `${said}, expected ${what.expectStatus}` }
  }
  return createNotedFence(
    { region: region.name, name: fence.name },
    {
      kind: 'http',
      place: new URL(fence.apply.url).origin,
      shown: { apply: shown(fence.apply), verify: shown(fence.verify), lift: shown(fence.lift) },
      apply: async cause => await carriedOut(fence.apply, cause),
      lift: async cause => await carriedOut(fence.lift, cause),
      verify: async () => {
        const { status, said } = await call(fence.verify, null)
        if (status === fence.verify.expectStatus) return { verdict: 'pass', said }
        return { verdict: saysNothing(status) ? 'unknown' : 'fail', said }
      },
    },
    notes,
    fault,
    now,
  )
}

function shown(what: HttpCall): string {
  const { origin, pathname } = new URL(what.url)
  return `${what.method} ${origin}${pathname}`
}

function reason(error: unknown, timeoutMs: number): string {
  if (!(error instanceof Error)) return String(error)
  if (error.name === 'TimeoutError') return `nothing within ${timeoutMs} ms`
  return error.cause instanceof Error ? ((error.cause as NodeJS.ErrnoException).code ?? error.cause.message) : error.message
}
