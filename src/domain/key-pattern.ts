/** Whether `pattern`, in which `*` stands for any text, matches the whole key. Linear: a pattern of many stars cannot make it slow. */
export function keyPattern(pattern: string, key: string): boolean {
  const [head = '', ...rest] = pattern.split('*')
  const tail = rest.pop()
  if (tail === undefined) return pattern === key
  if (key.length < head.length + tail.length || !key.startsWith(head) || !key.endsWith(tail)) return false
  // The earliest place for each part leaves the most room for the ones after it.
  let from = head.length
  for (const part of rest) {
    const found = key.indexOf(part, from)
    if (found < 0) return false
    from = found + part.length
  }
  return from <= key.length - tail.length
}
