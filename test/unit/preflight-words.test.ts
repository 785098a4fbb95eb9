import { expect, test } from 'vitest'
import type { AuditFinding, ProbeResult } from '../../src/domain/boundary.ts'
import type { RegionDatabase, RegionFacts } from '../../src/domain/ports.ts'
import { boundaryInstalled, fenceCoversWriters } from '../../src/engine/checks/regions.ts'
import { createFakeEngine } from './engine-fixture.ts'

const CHANGED = Array.from({ length: 20 }, (_, i) => `function homeregion.f${i} was changed after its installation`)
const OPEN = { fencedSince: null, fencedReason: null, lease: null, writesNeedLease: false }

function looked(about: { readonly guard?: readonly string[]; readonly sqlstate?: string; readonly conditions?: Partial<RegionFacts> }) {
  const conditions = { ...OPEN, ...about.conditions }
  const findings = (about.guard ?? []).map(
    (why): AuditFinding => ({ kind: 'guard', subject: why, why, closes: 'homeregion init', around: ['boundary'], accepted: false }),
  )
  const probe = (table: string) =>
    ({
      writer: 'app',
      role: 'app',
      table,
      outcome: 'refused',
      sqlstate: about.sqlstate ?? 'HR001',
      message: 'no',
    }) as unknown as ProbeResult
  const facts = { region: 'a', guardProblems: about.guard ?? [], missingPrivileges: [], ...conditions }
  const region = {
    ...{
      region: 'a',
      read: () => Promise.resolve({ key: 'k', writable: true, homeRegion: 'a', epoch: 1 }),
      facts: () => Promise.resolve(facts),
    },
    ...{ auditWriters: () => Promise.resolve(findings), probeWrites: () => Promise.resolve([probe('x'), probe('y')]) },
    ...{ probeEndpoints: () => Promise.resolve([]), conditions: () => Promise.resolve(conditions) },
    standbys: () => Promise.resolve({ standbys: [], problem: null, undeclared: [] }),
  } as unknown as RegionDatabase
  const move = { key: 'k', source: 'a', target: 'a', epoch: 1, seq: 1 }
  const subject = { moves: [move], move, barrierEventId: null, startedMonotonicMs: 0, standing: [], memory: new Map<string, unknown>() }
  return { engine: createFakeEngine([region]), subject }
}

test('a boundary that differs in many places is one line that names what mends it; all of them are among the facts', async () => {
  const { engine, subject } = looked({ guard: CHANGED })
  const installed = await boundaryInstalled(engine, subject, { check: 'boundary-installed', parameters: {} })
  expect(installed.observed).toBe('a: the boundary differs from the configuration in 20 places (closes it: homeregion init)')
  expect(installed.facts?.['problems']).toHaveLength(20)
  const covers = await fenceCoversWriters(engine, subject, { check: 'fence-covers-writers', parameters: {} })
  expect(covers.observed.split('; ')[0]).toBe(installed.observed)
  expect(covers.observed).not.toContain('was changed after')
})

test('a region whose lease was never granted is named as such, and no login is suspected', async () => {
  const { engine, subject } = looked({ sqlstate: 'HR004', conditions: { writesNeedLease: true } })
  const covers = await fenceCoversWriters(engine, subject, { check: 'fence-covers-writers', parameters: {} })
  expect(covers).toMatchObject({ verdict: 'fail', observed: 'a has no lease, and writes nothing without one (homeregion agent)' })
  const other = looked({ sqlstate: 'HR003' })
  const strange = await fenceCoversWriters(other.engine, other.subject, { check: 'fence-covers-writers', parameters: {} })
  expect(strange.observed).toContain('does its login lead to this database?')
})
