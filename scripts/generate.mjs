// Writes what is derived from src/domain and the file schemas: JSON Schemas, docs/states.md, the README's table of exit codes.
// `--check` writes nothing and fails when a file differs from what would be written.
import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { dirname, join, relative } from 'node:path'
import { fileURLToPath } from 'node:url'
import { tsImport } from 'tsx/esm/api'

const root = join(dirname(fileURLToPath(import.meta.url)), '..')
const check = process.argv.includes('--check')
const load = async file => await tsImport(join(root, file), import.meta.url)
const json = value => `${JSON.stringify(value, null, 2)}\n`

const [{ configJsonSchema }, { runbookJsonSchema }, { statesMarkdown }, { exitCodeMarkdown }] = await Promise.all([
  load('src/adapters/files/config-file.ts'),
  load('src/domain/runbook-schema.ts'),
  load('src/cli/render/states.ts'),
  load('src/cli/render/exit-codes.ts'),
])

const outputs = new Map([
  ['schemas/config.v1.schema.json', json(configJsonSchema())],
  ['schemas/runbook.v1.schema.json', json(runbookJsonSchema())],
  ['docs/states.md', statesMarkdown()],
])
const readme = join(root, 'README.md')
if (existsSync(readme)) outputs.set('README.md', withBlock(readFileSync(readme, 'utf8'), 'exit-codes', exitCodeMarkdown()))

const drifted = [...outputs].filter(([file, text]) => {
  const path = join(root, file)
  return !existsSync(path) || readFileSync(path, 'utf8') !== text
})
for (const [file, text] of drifted) {
  const path = join(root, file)
  if (!check) {
    mkdirSync(dirname(path), { recursive: true })
    writeFileSync(path, text)
  }
  console.error(`${check ? 'differs from its source' : 'written'}: ${relative(process.cwd(), path)}`)
}
if (check && drifted.length > 0) {
  console.error('run: npm run generate')
  process.exitCode = 1
}

/** The text with what stands between the two markers replaced; unchanged where there are none. */
function withBlock(text, name, content) {
  const block = new RegExp(`(<!-- ${name} -->\n)[\\s\\S]*?(<!-- /${name} -->)`)
  return text.replace(block, (_all, start, end) => `${start}${content}\n${end}`)
}
