export type ColourWhen = 'auto' | 'always' | 'never'

export const COLOUR_WHEN = ['auto', 'always', 'never'] as const satisfies readonly ColourWhen[]

/**
 * The one decision about colour, made once per stream: `--color`, then NO_COLOR, then FORCE_COLOR, then TERM=dumb, then whether
 * the stream is a terminal. The result is a chalk level; this tool uses the sixteen basic colours only, so it is 0 or 1.
 */
export function colourLevel(when: ColourWhen, env: Readonly<Record<string, string | undefined>>, isTerminal: boolean): 0 | 1 {
  if (when !== 'auto') return when === 'always' ? 1 : 0
  if ((env['NO_COLOR'] ?? '') !== '') return 0
  const forced = env['FORCE_COLOR']
  if (forced !== undefined) return forced === '0' || forced === 'false' ? 0 : 1
  if (env['TERM'] === 'dumb') return 0
  return isTerminal ? 1 : 0
}
