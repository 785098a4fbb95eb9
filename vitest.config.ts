import { defineConfig } from 'vitest/config'

/** Tests of `test/integration` that need the whole rig; the others start databases or brokers of their own. */
const ON_THE_RIG = ['kafka-fence-sandbox', 'kafka-stream', 'sandbox', 'service-inbox', 'service-quarantine', 'service-write'].map(
  name => `test/integration/${name}.test.ts`,
)

/** One machine: the groups run one after another, the files of a group in pairs. */
export default defineConfig({
  test: {
    maxWorkers: 2,
    projects: [
      { test: { name: 'unit', include: ['test/unit/**/*.test.ts'] } },
      {
        test: {
          name: 'integration',
          include: ['test/integration/**/*.test.ts'],
          exclude: ON_THE_RIG,
          testTimeout: 120_000,
          hookTimeout: 120_000,
          sequence: { groupOrder: 1 },
        },
      },
      {
        test: {
          name: 'rig',
          include: [...ON_THE_RIG, 'test/{e2e,crash,fault}/**/*.test.ts'],
          testTimeout: 180_000,
          hookTimeout: 240_000,
          globalSetup: ['test/rig/global-setup.ts'],
          sequence: { groupOrder: 2 },
        },
      },
    ],
  },
})
