import type { Command } from 'commander'
import type { CliContext } from '../context.ts'

export function register(program: Command, context: CliContext): void {
  const config = program.command('config').description('the configuration: what is in effect, and whether it is valid')
  config
    .command('show')
    .description('print the effective configuration and where each value came from; secrets appear as references only (-o json)')
    .action(async () => {
      const format = context.format('json')
      const { configJson, configYaml } = await import('../render/config.ts')
      const loaded = await context.settings()
      context.out.line(format === 'json' ? configJson(loaded) : configYaml(loaded))
    })
  config
    .command('validate')
    .description('check homeregion.yaml and report every problem in it (-o json)')
    .action(async () => {
      const format = context.format('json')
      const { file, config } = await context.settings()
      const regions = config.regions.map(region => region.name)
      if (format === 'json') context.out.line(JSON.stringify({ file, valid: true, regions, tables: config.guarded.length }))
      else context.out.line(`${file} is valid: ${regions.join(', ')}; ${config.guarded.length} guarded tables`)
    })
}
