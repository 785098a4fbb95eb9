import { version } from './version.ts'

const argv = process.argv.slice(2)

// Answered before anything else is loaded: deployment tools ask for it often, and it must cost no more than Node itself.
if (argv[0] === '--version' || argv[0] === '-V') {
  process.stdout.write(`${version()}\n`)
} else {
  const { loadProgram } = await import('./compiled-program.ts')
  const { run } = await loadProgram()
  // Never process.exit(): it cuts what is still on its way into a pipe.
  process.exitCode = await run(argv, { stdout: process.stdout, stderr: process.stderr, env: process.env, cwd: process.cwd() })
}
