// Bundles the command line (and the sandbox's service) into dist/. One bundle with split chunks: a verb loads only what it uses, and a
// start does not open the hundreds of small files its dependencies are made of.
import { existsSync, readdirSync, rmSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { build } from 'esbuild'

const root = join(dirname(fileURLToPath(import.meta.url)), '..')
const entries = { main: 'src/cli/main.ts', 'service-process': 'sandbox/service-process.ts' }

const { metafile } = await build({
  absWorkingDir: root,
  entryPoints: Object.fromEntries(Object.entries(entries).filter(([, file]) => existsSync(join(root, file)))),
  outdir: 'dist',
  bundle: true,
  splitting: true,
  format: 'esm',
  platform: 'node',
  target: 'node20',
  sourcemap: 'linked',
  sourcesContent: false,
  legalComments: 'none',
  // Keeps names in stack traces; whitespace and syntax are what costs parse time.
  minifySyntax: true,
  minifyWhitespace: true,
  chunkNames: 'chunks/[name]-[hash]',
  // pg's native binding is optional and never used here.
  external: ['pg-native'],
  // The CommonJS dependencies (kafkajs, pg, commander) call require() for Node's own modules.
  banner: { js: "import { createRequire as __createRequire } from 'node:module'; const require = __createRequire(import.meta.url);" },
  logLevel: 'warning',
  metafile: true,
})

// Split chunks carry hashes in their names, so those of an older build would pile up. Removed only now: a command that is started
// while a build runs finds either the old set or the new one.
const made = new Set(Object.keys(metafile.outputs).map(file => join(root, file)))
for (const entry of readdirSync(join(root, 'dist'), { recursive: true, withFileTypes: true })) {
  const file = join(entry.parentPath, entry.name)
  if (entry.isFile() && !made.has(file)) rmSync(file, { force: true })
}
