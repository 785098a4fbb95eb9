import { SqlFailure } from '../adapters/postgres/service-pool.ts'
import { SQLSTATE } from '../domain/boundary.ts'

export type RefusalKind = keyof typeof SQLSTATE

/** A write that the boundary refused, with what it said about the owner. */
export type Refusal = {
  readonly kind: RefusalKind
  readonly sqlstate: string
  readonly message: string
  /** Home region as this region's boundary knows it; null where it knows none. */
  readonly homeRegion: string | null
  readonly epoch: number | null
  readonly state: string | null
}

/** Null for anything that is not a refusal of the boundary. */
export function refusalOf(error: unknown): Refusal | null {
  if (!(error instanceof SqlFailure)) return null
  const kind = Object.entries(SQLSTATE).find(([, code]) => code === error.sqlstate)?.[0] as RefusalKind | undefined
  if (kind === undefined) return null
  const detail = parsedDetail(error.detail)
  const text = (name: string): string | null => (typeof detail[name] === 'string' ? detail[name] : null)
  const epoch = detail['epoch']
  return {
    kind,
    sqlstate: error.sqlstate,
    message: error.message,
    homeRegion: text('homeRegion'),
    epoch: typeof epoch === 'number' ? epoch : null,
    state: text('state'),
  }
}

function parsedDetail(detail: string | null): Record<string, unknown> {
  try {
    const json: unknown = JSON.parse(detail ?? '{}')
    return typeof json === 'object' && json !== null ? (json as Record<string, unknown>) : {}
  } catch {
    return {}
  }
}
