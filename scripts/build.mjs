// Bundles the command line (and the sandbox's service) into dist/, twice: as split chunks that any Node reads, and the program once
// more as one file with V8's compiled code beside it, which the Node that built it starts from.
import { spawnSync } from 'node:child_process'
import { createHash } from 'node:crypto'
import { existsSync, mkdirSync, readdirSync, renameSync, rmSync, statSync, utimesSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { build } from 'esbuild'

const root = join(dirname(fileURLToPath(import.meta.url)), '..')
const dist = join(root, 'dist')
mkdirSync(dist, { recursive: true })

const shared = {
  absWorkingDir: root,
  bundle: true,
  platform: 'node',
  target: 'node20',
  legalComments: 'none',
  // Keeps names in stack traces; whitespace and syntax are what costs parse time.
  minifySyntax: true,
  minifyWhitespace: true,
  // pg's native binding is optional and never used here.
  external: ['pg-native'],
  logLevel: 'warning',
}

const startedMs = Date.now()
const program = await buildProgram()
const cache = makeCompiled(program)
const chunks = await buildChunks(program)

// Names carry hashes, so those of an older build would pile up. Removed only now: a command that is started while a build runs finds
// either the old set or the new one. What is newer than this build belongs to another one that runs beside it.
const made = new Set([...chunks, join(dist, program), ...cache])
for (const entry of readdirSync(dist, { recursive: true, withFileTypes: true })) {
  const file = join(entry.parentPath, entry.name)
  if (entry.isFile() && !made.has(file) && statSync(file).mtimeMs < startedMs) rmSync(file, { force: true })
}
// esbuild leaves a file alone when its content is the same; whoever asks whether dist/ is newer than the sources looks at this one.
utimesSync(join(dist, 'main.js'), new Date(), new Date())

/** The program as one CommonJS file: only a script can carry compiled code, an ES module cannot. */
async function buildProgram() {
  const { outputFiles } = await build({
    ...shared,
    entryPoints: ['src/cli/program.ts'],
    format: 'cjs',
    write: false,
    charset: 'ascii',
    // A script outside the module loader has no import(); the modules behind it are in the same file, and still made on first use.
    supported: { 'dynamic-import': false },
    // pg asks for `Response` to find out whether it runs at Cloudflare; merely asking makes Node load its whole HTTP client.
    define: { 'import.meta.url': '__moduleUrl', Response: 'undefined' },
    banner: { js: "const __moduleUrl = require('node:url').pathToFileURL(__filename).href;" },
  })
  const [{ contents }] = outputFiles
  // V8 knows a script by its length alone: the hash in the name is what keeps code and compiled code together.
  const name = `program-${createHash('sha256').update(contents).digest('hex').slice(0, 16)}.cjs`
  place(join(dist, name), contents)
  return name
}

/** Compiled code of this Node, warmed by the commands of scripts/compile.mjs. Without it everything works, only slower to start. */
function makeCompiled(name) {
  const { status, stdout, stderr } = spawnSync(process.execPath, [join(root, 'scripts', 'compile.mjs'), join(dist, name)], {
    encoding: 'utf8',
    timeout: 60_000,
  })
  if (status === 0) return [stdout.trim()]
  process.stderr.write(`no compiled code was made; commands start slower for it\n${stderr}`)
  return []
}

async function buildChunks(name) {
  const entries = { main: 'src/cli/main.ts', 'service-process': 'sandbox/service-process.ts' }
  const { metafile } = await build({
    ...shared,
    entryPoints: Object.fromEntries(Object.entries(entries).filter(([, file]) => existsSync(join(root, file)))),
    outdir: 'dist',
    splitting: true,
    format: 'esm',
    sourcemap: 'linked',
    sourcesContent: false,
    chunkNames: 'chunks/[name]-[hash]',
    define: { HOMEREGION_PROGRAM: JSON.stringify(name) },
    // The CommonJS dependencies (kafkajs, pg, commander) call require() for Node's own modules.
    banner: { js: "import { createRequire as __createRequire } from 'node:module'; const require = __createRequire(import.meta.url);" },
    metafile: true,
  })
  return Object.keys(metafile.outputs).map(file => join(root, file))
}

/** Whole or not at all, also for somebody who starts a command right now. */
function place(file, contents) {
  const temporary = `${file}.${process.pid}`
  writeFileSync(temporary, contents)
  renameSync(temporary, file)
}
