import { COLOUR_WHEN, type ColourWhen } from './colour.ts'

/** What must be known before the command line is parsed: which verb to load, and how to print an error of the parsing itself. */
export type ScannedGlobals = { readonly verb: string | undefined; readonly output: string; readonly color: ColourWhen }

const WITH_VALUE = ['--config', '--control-plane', '--color', '--output', '-o']

/** A look at the raw arguments that never fails; commander parses and judges them afterwards. */
export function scanGlobals(argv: readonly string[]): ScannedGlobals {
  let verb: string | undefined
  let output = 'text'
  let color: ColourWhen = 'auto'
  for (let i = 0; i < argv.length; i++) {
    const word = argv[i] ?? ''
    if (word === '--') break
    const [name, value] = split(word, argv[i + 1])
    if (name === '-o' || name === '--output') output = value ?? output
    if (name === '--color') color = COLOUR_WHEN.find(when => when === value) ?? color
    if (WITH_VALUE.includes(word)) i++
    else if (!word.startsWith('-')) verb ??= word
  }
  return { verb, output, color }
}

function split(word: string, following: string | undefined): [string, string | undefined] {
  if (word.startsWith('-o') && word.length > 2) return ['-o', word.slice(2)]
  const equals = word.startsWith('--') ? word.indexOf('=') : -1
  return equals < 0 ? [word, following] : [word.slice(0, equals), word.slice(equals + 1)]
}
