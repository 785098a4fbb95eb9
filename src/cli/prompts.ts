import process from 'node:process'

/**
 * Node's readline leaves raw mode when its terminal is gone, which fails, and it throws what nobody of ours could catch: the command would die with the
 * run open. A terminal that has ended has no mode to leave.
 */
const { stdin } = process
if (stdin.isTTY) {
  const setRawMode = stdin.setRawMode.bind(stdin)
  stdin.setRawMode = raw => (stdin.readableEnded || stdin.destroyed ? stdin : setRawMode(raw))
}

// Imported statically here and dynamically by whoever asks: prompts are loaded only when there is something to ask.
export { confirm, input, select } from '@inquirer/prompts'
