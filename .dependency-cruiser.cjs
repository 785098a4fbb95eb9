/** Imports run one way: cli -> engine -> domain <- adapters; service and agent stand on domain and adapters. */
const only = (name, from, allowed) => ({
  name,
  severity: 'error',
  from: { path: from },
  to: { path: '^(src|sandbox|test|bench)/', pathNot: allowed },
})
module.exports = {
  forbidden: [
    { name: 'no-circular', severity: 'error', from: {}, to: { circular: true } },
    only('domain-is-pure', '^src/domain/', '^src/domain/'),
    {
      name: 'domain-touches-nothing',
      severity: 'error',
      from: { path: '^src/domain/' },
      to: { dependencyTypes: ['npm', 'core'], pathNot: '(^|/)zod/|^crypto$' },
    },
    only('engine-stands-on-domain', '^src/engine/', '^src/(engine|domain)/'),
    only('adapters-stand-on-domain', '^src/adapters/', '^src/(adapters|domain)/'),
    only('service-stands-on-domain-and-adapters', '^src/service/', '^src/(service|domain|adapters)/'),
    only('agent-stands-on-domain-and-adapters', '^src/agent/', '^src/(agent|domain|adapters)/'),
    {
      name: 'kafkajs-stays-in-one-folder',
      severity: 'error',
      from: { path: '^(src|sandbox)/', pathNot: '^src/adapters/kafka-region/' },
      to: { path: 'node_modules/kafkajs' },
    },
    {
      name: 'pg-stays-in-adapters',
      severity: 'error',
      from: { path: '^src/', pathNot: '^src/adapters/' },
      to: { path: 'node_modules/pg/' },
    },
    {
      name: 'only-compose-wires-adapters',
      severity: 'error',
      from: { path: '^src/cli/', pathNot: '^src/cli/(compose|commands/sandbox)' },
      to: { path: '^src/adapters/', pathNot: '^src/adapters/(files|system)/' },
    },
    { name: 'product-does-not-import-tests', severity: 'error', from: { path: '^(src|sandbox)/' }, to: { path: '^(test|bench)/' } },
  ],
  options: {
    doNotFollow: { path: 'node_modules' },
    tsPreCompilationDeps: true,
    tsConfig: { fileName: 'tsconfig.json' },
    enhancedResolveOptions: { exportsFields: ['exports'], conditionNames: ['import', 'node', 'types'] },
  },
}
