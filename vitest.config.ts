import { defineConfig } from 'vitest/config'

/** Tests of `test/integration` that need the whole rig; the others start databases or brokers of their own. */
const ON_THE_RIG = ['kafka-fence-sandbox', 'kafka-stream', 'sandbox', 'service-inbox', 'service-quarantine', 'service-write'].map(
  name => `test/integration/${name}.test.ts`,
)

/** A region is dark for real in them: on a rig of their own, since what they leave behind is a region in exile. */
const FAILOVER = ['control-plane-lost', 'failover-forced', 'rejoin-after-failover'].map(name => `test/e2e/${name}.test.ts`)
/** Nine minutes more, most of them spent waiting for leases to end and links to heal: with them everything takes longer than half an hour. */
const REHEARSAL = ['test/e2e/{agent,drill,failover-killed}.test.ts', 'test/fault/**/*.test.ts']

const ON_ONE_RIG = {
  testTimeout: 180_000,
  hookTimeout: 240_000,
  fileParallelism: false,
  globalSetup: ['test/rig/global-setup.ts'],
}

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
          exclude: [...FAILOVER, ...REHEARSAL],
          ...ON_ONE_RIG,
          sequence: { groupOrder: 3 },
        },
      },
      { test: { name: 'failover', include: FAILOVER, ...ON_ONE_RIG, sequence: { groupOrder: 4 } } },
      { test: { name: 'rehearsal', include: REHEARSAL, ...ON_ONE_RIG, sequence: { groupOrder: 5 } } },
    ],
  },
})
