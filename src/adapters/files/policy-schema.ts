import * as z from 'zod/mini'
import { count, duration, durationOr, name, said } from './scalar-schema.ts'

const RPO = 'must be never, any, or a whole number with its unit: 30s'
const lossRules = z
  .array(
    z.strictObject({
      keys: said(name, 'A key, or a pattern: * stands for any text.'),
      rpo: z
        .union([z.enum(['never', 'any']), durationOr(RPO)], RPO)
        .register(z.globalRegistry, { description: 'never: nothing may be lost. any: whatever it takes. 30s: writes of so long.' }),
    }),
  )
  .register(z.globalRegistry, {
    description: 'What may be lost in a forced failover. The first match counts; a key that none matches may lose nothing.',
  })

/** What a run may do, and what a forced failover may lose. */
export const policySchema = z.prefault(
  z.strictObject({
    /** A run of more keys than this asks for their number again: a wrong column in a file once named 883 keys where 8 were meant. */
    maxKeys: z._default(count(1_000_000), 100),
    evidenceMaxAge: z._default(duration, '5s'),
    runLease: z._default(duration, '15s'),
    callTimeout: z._default(duration, '5s'),
    loss: z._default(lossRules, []),
    darkAfter: z._default(said(duration, 'Nobody has reached a region for so long: it is dark. At least twice agent.observeEvery.'), '10s'),
    approvals: z.prefault(
      z.strictObject({
        approvers: z._default(
          said(z.array(name), 'Logins of the control plane that may approve a forced failover, though not one they began.'),
          [],
        ),
        needed: z._default(count(20), 1),
        aboveKeys: z._default(said(count(1_000_000), 'More keys than this need approval, whatever the fence.'), 100),
      }),
      {},
    ),
    ackToken: z._default(said(duration, 'How long a token of `plan failover` may be used.'), '10m'),
    coolDown: z._default(said(duration, 'Sooner than this after its failover, keys go back only with a reason.'), '10m'),
    automatic: z.optional(z.strictObject({ coolDown: z._default(duration, '1h'), maxLoss: duration })),
  }),
  {},
)
