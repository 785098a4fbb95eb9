import { version } from './version.ts'

const argv = process.argv.slice(2)

// Answered before anything else is loaded: deployment tools ask for it often, and it must cost no more than Node itself.
if (argv[0] === '--version' || argv[0] === '-V') {
  process.stdout.write(`${version()}\n`)
} else {
  const { loadProgram } = await import('./compiled-program.ts')
  const { run } = await loadProgram()
  // No process.exit() while something is still on its way into a pipe: it would be cut.
  process.exitCode = await run(argv, { stdout: process.stdout, stderr: process.stderr, env: process.env, cwd: process.cwd() })
  await Promise.all([process.stdout, process.stderr].map(async stream => await new Promise<void>(done => stream.write('', () => done()))))
  // Everything is said and closed. What a driver keeps open for a server that does not answer must not keep the operator waiting; the timer
  // itself keeps nothing alive.
  // eslint-disable-next-line no-restricted-properties -- nothing is on its way any more
  setTimeout(() => process.exit(), 1000).unref()
}
