// Imported statically here and dynamically by whoever asks: prompts are loaded only when there is something to ask.
export { confirm, input, select } from '@inquirer/prompts'
