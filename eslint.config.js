import tseslint from 'typescript-eslint'

// Rules only; format and import order are Biome's. An unawaited fence is the worst bug this tool can have,
// so everything about promises and exhaustive switches is an error.
export default tseslint.config(
  { ignores: ['dist/**', 'node_modules/**', 'scripts/**', '*.js', '.*.cjs', 'bin/**'] },
  ...tseslint.configs.recommendedTypeChecked,
  {
    languageOptions: { parserOptions: { projectService: true, tsconfigRootDir: import.meta.dirname } },
    linterOptions: { reportUnusedDisableDirectives: 'error' },
    rules: {
      '@typescript-eslint/no-floating-promises': 'error',
      '@typescript-eslint/no-misused-promises': 'error',
      '@typescript-eslint/await-thenable': 'error',
      '@typescript-eslint/require-await': 'off',
      '@typescript-eslint/return-await': ['error', 'always'],
      '@typescript-eslint/switch-exhaustiveness-check': ['error', { considerDefaultExhaustiveForUnions: true }],
      '@typescript-eslint/no-explicit-any': 'error',
      '@typescript-eslint/no-non-null-assertion': 'error',
      '@typescript-eslint/consistent-type-imports': 'error',
      '@typescript-eslint/no-unnecessary-condition': 'off',
      '@typescript-eslint/restrict-template-expressions': ['error', { allowNumber: true, allowBoolean: true }],
      'no-restricted-properties': [
        'error',
        { object: 'process', property: 'exit', message: 'cuts output on a pipe; set process.exitCode' },
      ],
    },
  },
)
