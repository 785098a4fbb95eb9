import ora from 'ora'
import { redact } from '../adapters/system/redaction.ts'
import { printable } from './render/error.ts'
import type { LiveLine } from './render/progress.ts'

/** A spinner on a terminal. `discardStdin` stays off: it would swallow Ctrl-C until the spinner ends. */
export function createLiveLine(stream: NodeJS.WriteStream): LiveLine {
  const spinner = ora({ stream, discardStdin: false })
  return {
    show: text => {
      const room = (stream.columns ?? 80) - 4
      const shown = redact(printable(text))
      spinner.text = shown.length > room ? `${shown.slice(0, room - 1)}…` : shown
      if (!spinner.isSpinning) spinner.start()
      return true
    },
    clear: () => {
      if (spinner.isSpinning) spinner.stop()
    },
  }
}
