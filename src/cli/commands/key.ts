import { type Command, InvalidArgumentError } from 'commander'
import type { CliContext } from '../context.ts'
import type { ListOptions } from './list-options.ts'

/** A page that still fits a terminal's scroll-back. */
const PAGE = 100

export function register(program: Command, context: CliContext): void {
  const key = program.command('key').description('the ownership keys: register them, and see where they are at home')
  key
    .command('add')
    .argument('<key...>', 'one or more keys')
    .requiredOption('--home <region>', 'their home region')
    .description('register keys under epoch 1: all of them, or none (-o json)')
    .action(async (keys: readonly string[], { home }: { home: string }) => {
      await (await work()).add(context, keys, home)
    })
  key
    .command('import')
    .argument('<file>', 'one key a line; # begins a comment')
    .requiredOption('--home <region>', 'their home region')
    .description('register the keys of a file: all of them, or none (-o json)')
    .action(async (file: string, { home }: { home: string }) => {
      await (await work()).importFile(context, file, home)
    })
  key
    .command('sync')
    .description('tell every region about every registered key; what a region knows already stays as it is (-o json)')
    .action(async () => {
      await (await work()).sync(context)
    })
  key
    .command('list')
    .option('--home <region>', 'only keys at home there')
    .option('--state <state>', 'only keys in this state')
    .option('--after <key>', 'begin after this key')
    .option('--limit <n>', 'at most this many', count, PAGE)
    .description('registered keys with home, epoch and state (-o json)')
    .action(async (options: ListOptions) => {
      await (await work()).list(context, options)
    })
  key
    .command('show')
    .argument('<key>')
    .description('one key and its whole history (-o json)')
    .action(async (name: string) => {
      await (await work()).show(context, name)
    })
}

function count(text: string): number {
  if (/^[1-9]\d{0,5}$/.test(text)) return Number(text)
  throw new InvalidArgumentError('It must be a whole number from 1 to 999999.')
}

async function work() {
  return await import('./key-work.ts')
}
