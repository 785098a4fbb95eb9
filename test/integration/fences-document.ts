import { readFileSync, writeFileSync } from 'node:fs'
import { expect } from 'vitest'
import { packageFile } from '../../src/adapters/files/package-root.ts'

/** The tables of docs/FENCES.md are what the tests saw. Run them with this set, and they write it instead of comparing. */
const REWRITE = process.env['HOMEREGION_WRITE_DOCS'] === '1'

/** Holds what stands between the two markers of `docs/FENCES.md` against these lines. */
export function expectDocumented(marker: string, lines: readonly string[]): void {
  const file = packageFile('docs', 'FENCES.md')
  const text = readFileSync(file, 'utf8')
  const block = new RegExp(`(<!-- ${marker} -->\n)([\\s\\S]*?)(<!-- /${marker} -->)`)
  const found = block.exec(text)
  if (found === null) throw new Error(`docs/FENCES.md has no markers ${marker}`)
  const wanted = `${lines.join('\n')}\n`
  if (REWRITE)
    writeFileSync(
      file,
      text.replace(block, (_all, start: string, _old, end: string) => `${start}${wanted}${end}`),
    )
  else expect(found[2], 'docs/FENCES.md: run this test with HOMEREGION_WRITE_DOCS=1').toBe(wanted)
}

export function markdownTable(head: readonly string[], rows: readonly (readonly string[])[]): readonly string[] {
  const line = (cells: readonly string[]) => `| ${cells.join(' | ')} |`
  return [line(head), line(head.map(() => '---')), ...rows.map(line)]
}
