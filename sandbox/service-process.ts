import { startService } from './service.ts'
import { readServiceConfig, type ServiceReady } from './service-config.ts'

/** One process per region: `service-process.ts CONFIG.json`. Ends cleanly on SIGTERM. */
async function main(file: string): Promise<void> {
  const config = readServiceConfig(file)
  const service = await startService(config)
  const ready: ServiceReady = { ready: true, region: config.region, url: service.url, pid: process.pid }
  process.stdout.write(`${JSON.stringify(ready)}\n`)
  const stop = () => {
    service.close().then(
      () => process.stdout.write(`${JSON.stringify({ stopped: true })}\n`),
      (error: unknown) => process.stderr.write(`${String(error)}\n`),
    )
  }
  process.once('SIGTERM', stop)
  process.once('SIGINT', stop)
}

const [, , file] = process.argv
if (file === undefined) {
  process.stderr.write('usage: service-process CONFIG.json\n')
  process.exitCode = 64
} else await main(file)
