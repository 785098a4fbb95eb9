/** A valid configuration whose lines the tests refer to by number. */
export const SAMPLE = `service: billing
controlPlane:
  url: postgres://operator@control:5432/homeregion
  password: { env: CONTROL_PASSWORD }
regions:
  region-a:
    database:
      operator: { url: postgres://operator@a:5432/app, password: { file: secrets/a } }
      writers:
        - { url: postgres://app_writer@a:5432/app, password: { env: WRITER_A } }
    kafka: { brokers: ["a:9092"], outboxTopic: billing.outbox, inboxGroup: billing-inbox }
  region-b:
    database:
      operator: { url: postgres://operator@b:5432/app, password: { env: OPERATOR_B } }
      writers:
        - { url: postgres://app_writer@b:5432/app, password: { env: WRITER_B } }
    kafka: { brokers: ["b:9092"], outboxTopic: billing.outbox, inboxGroup: billing-inbox }
tables:
  - { table: public.account, key: tenant_id, version: { aggregate: account_id, column: version } }
outbox: { table: public.outbox, key: tenant_id }
inbox: { table: public.inbox, key: tenant_id }
idempotency: { table: public.idempotency, key: tenant_id, id: idempotency_key }
policy:
  callTimeout: 3s
`
