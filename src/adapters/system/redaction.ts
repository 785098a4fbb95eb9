// Every secret this process has read. Process-wide on purpose: whatever wrote it, nothing may leave with one of these inside.
const forms = new Set<string>()

/** Below this length a "secret" would blank out ordinary words; such a password protects nothing anyway. */
const SHORTEST = 4

export const REDACTED = '[redacted]'

/** From now on `redact` replaces the secret, as it is and as a URL or a JSON text would carry it. */
export function remember(secret: string): void {
  if (secret.length < SHORTEST) return
  for (const form of [secret, encodeURIComponent(secret), encodeURI(secret), JSON.stringify(secret).slice(1, -1)]) forms.add(form)
}

/** For the output edge: the text without any secret read so far. */
export function redact(text: string): string {
  let clean = text
  // Longest first: a secret that contains another must not leave its tail behind.
  for (const form of [...forms].sort((a, b) => b.length - a.length)) {
    if (clean.includes(form)) clean = clean.replaceAll(form, REDACTED)
  }
  return clean
}
