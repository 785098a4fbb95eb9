/**
 * Like Promise.all, but fails only when everything has ended: a start that is reported as failed while its siblings go on
 * would leave processes behind that `down` never saw.
 */
export async function allSettled<T extends readonly unknown[]>(work: T): Promise<{ -readonly [I in keyof T]: Awaited<T[I]> }> {
  const outcomes = await Promise.allSettled(work)
  const failed = outcomes.find(o => o.status === 'rejected')
  if (failed !== undefined) throw failed.reason
  return await Promise.all(work)
}
