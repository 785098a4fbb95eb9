import { HomeregionError } from '../../src/domain/errors.ts'

/** The coded error that `action` ends with; anything else fails the test. */
export async function codedError(action: () => unknown): Promise<HomeregionError & { readonly report: string }> {
  try {
    await action()
  } catch (error) {
    if (error instanceof HomeregionError)
      return Object.assign(error, { report: typeof error.fields['report'] === 'string' ? error.fields['report'] : '' })
    throw error
  }
  throw new Error('expected an error, there was none')
}
