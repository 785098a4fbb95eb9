import { defineConfig } from 'vitest/config'

// One machine, real databases and brokers: files of a project that share a rig run one after another, and so do the projects.
export default defineConfig({
  test: {
    projects: [
      { test: { name: 'unit', include: ['test/unit/**/*.test.ts'] } },
      {
        test: {
          name: 'integration',
          include: ['test/integration/**/*.test.ts'],
          testTimeout: 60_000,
          hookTimeout: 120_000,
          fileParallelism: false,
          globalSetup: ['test/rig/global-setup.ts'],
          sequence: { groupOrder: 1 },
        },
      },
      {
        test: {
          name: 'e2e',
          include: ['test/{e2e,crash,fault}/**/*.test.ts'],
          testTimeout: 180_000,
          hookTimeout: 240_000,
          fileParallelism: false,
          globalSetup: ['test/rig/global-setup.ts'],
          sequence: { groupOrder: 2 },
        },
      },
    ],
  },
})
