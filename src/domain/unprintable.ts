/** C0, DEL and C1 controls, line separators, zero-width and bidirectional controls, lone surrogates: a terminal, a log or a chat would act on them. */
export const UNPRINTABLE = /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Cs}]/u

/** A text that has none of them, and something. */
export const PRINTABLE = /^[^\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Cs}]+$/u
