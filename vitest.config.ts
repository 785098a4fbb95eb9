import { defineConfig } from 'vitest/config'

/** Tests of `test/integration` that need the whole rig; the others start databases or brokers of their own. */
const ON_THE_RIG = ['kafka-fence-sandbox', 'kafka-stream', 'sandbox', 'service-inbox', 'service-quarantine', 'service-write'].map(
  name => `test/integration/${name}.test.ts`,
)

/** What rehearses a region going dark, with links that are cut and agents that die. */
const FAILOVER = ['test/e2e/{agent,automatic,drill,failover,rejoin}*.test.ts', 'test/fault/**/*.test.ts']
/** Of them those that do it again and again, killed at each point and at random: with them everything takes longer than half an hour. */
const OVER_AND_OVER = ['test/e2e/failover-killed.test.ts', 'test/fault/random-forced.test.ts']

/** A rig for each worker; those that share one run one after another. */
const ON_A_RIG = { testTimeout: 180_000, hookTimeout: 240_000, globalSetup: ['test/rig/global-setup.ts'] }

/** One machine: the groups run one after another, and so do the files of a group that share a rig. Files with servers of their own run in pairs. */
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
          include: ON_THE_RIG,
          testTimeout: 60_000,
          hookTimeout: 120_000,
          fileParallelism: false,
          globalSetup: ['test/rig/global-setup.ts'],
          sequence: { groupOrder: 2 },
        },
      },
      {
        test: {
          name: 'e2e',
          include: ['test/{e2e,crash}/**/*.test.ts'],
          exclude: FAILOVER,
          ...ON_A_RIG,
          fileParallelism: false,
          sequence: { groupOrder: 3 },
        },
      },
      // They mostly wait: for leases to end, for links to heal. In pairs.
      { test: { name: 'failover', include: FAILOVER, exclude: OVER_AND_OVER, ...ON_A_RIG, sequence: { groupOrder: 4 } } },
      { test: { name: 'over-and-over', include: OVER_AND_OVER, ...ON_A_RIG, sequence: { groupOrder: 5 } } },
    ],
  },
})
