import { afterAll, beforeAll, expect, test } from 'vitest'
import { against, COLUMNS, type Outcome, withoutFence } from './fence-matrix-cell.ts'
import { type MatrixScene, startMatrixScene } from './fence-matrix-scene.ts'
import { WRITERS } from './fence-matrix-writers.ts'
import { expectDocumented, markdownTable } from './fences-document.ts'
import { VERSIONS } from './region-boundary-fixture.ts'

type Row = { readonly free: string; readonly cells: readonly Outcome[] }

const rows = new Map<string, ReadonlyMap<number, Row>>()
let scenes: readonly MatrixScene[] = []

beforeAll(async () => {
  scenes = await Promise.all(VERSIONS.map(async version => await startMatrixScene(version)))
})
afterAll(async () => void (await Promise.all(scenes.map(async s => await s.stop()))))

async function rowOf(scene: MatrixScene, writer: (typeof WRITERS)[number]): Promise<Row> {
  const refused = await withoutFence(scene, writer)
  const cells: Outcome[] = []
  for (const column of COLUMNS) {
    const outcome = await against(scene, column, writer)
    const always = refused !== null && outcome.text === `stopped (${refused})`
    cells.push(always ? { ...outcome, text: 'refused without it too' } : outcome)
  }
  return { free: refused === null ? 'writes' : `refused (${refused})`, cells }
}

test.each(WRITERS)(
  'no fence alone lets a write of this kind through without a report: $name',
  async writer => {
    const found = await Promise.all(scenes.map(async scene => [scene.version, await rowOf(scene, writer)] as const))
    rows.set(writer.name, new Map(found))
    const problems = found.flatMap(([version, { cells }]) =>
      cells.flatMap((cell, i) =>
        cell.problem === null ? [] : [`PostgreSQL ${version}, ${COLUMNS[i] ?? ''}: ${cell.text}: ${cell.problem}`],
      ),
    )
    expect(problems).toEqual([])
    // A writer that could not write without any fence would prove nothing, unless the boundary is there to refuse it always.
    if (!/key at home here$/.test(writer.name)) expect(found.map(([, { free }]) => free)).toEqual(found.map(() => 'writes'))
  },
  120_000,
)

test.skipIf(VERSIONS.length < 2)('the table in docs/FENCES.md is what was seen', () => {
  const told = (texts: readonly string[]) => {
    const [first = '', ...others] = texts
    return others.every(t => t === first) ? first : VERSIONS.map((v, i) => `${v}: ${texts[i] ?? ''}`).join('<br>')
  }
  const lines = WRITERS.map(({ name }) => {
    const seen = VERSIONS.map(v => rows.get(name)?.get(v))
    return [name, told(seen.map(r => r?.free ?? '?')), ...COLUMNS.map((_c, i) => told(seen.map(r => r?.cells[i]?.text ?? '?')))]
  })
  expectDocumented('fences-postgres', markdownTable(['writer', 'no fence', ...COLUMNS], lines))
})
