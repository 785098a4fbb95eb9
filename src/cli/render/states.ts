import { STATES, TRANSITIONS, type Transition } from '../../domain/ownership.ts'
import { renderTable } from './table.ts'

const EPOCH = { first: '1', same: 'same', next: '+1' } as const satisfies Record<Transition['epoch'], string>
const HOME = { given: 'as given', same: 'same', target: 'the target' } as const satisfies Record<Transition['home'], string>
const MAY_WRITE = { home: 'home region', 'in-flight': 'writes in flight', nobody: 'nobody' } as const satisfies Record<
  Transition['mayWrite'],
  string
>

const HEAD = ['transition', 'from', 'to', 'may write then', 'epoch', 'home', 'what it means'] as const

function rows(): readonly (readonly string[])[] {
  return TRANSITIONS.map(t => [t.name, t.from ?? '-', t.to, MAY_WRITE[t.mayWrite], EPOCH[t.epoch], HOME[t.home], t.sentence])
}

export function statesTable(): string {
  return renderTable(HEAD, rows())
}

export function statesJson(): string {
  return JSON.stringify({ states: STATES, transitions: TRANSITIONS }, null, 2)
}

export function statesMermaid(): string {
  const lines = TRANSITIONS.map(t => `  ${t.from ?? '[*]'} --> ${t.to}: ${t.name}${t.epoch === 'next' ? ' (epoch + 1)' : ''}`)
  return ['stateDiagram-v2', ...lines].join('\n')
}

/** Markdown of docs/states.md. */
export function statesMarkdown(): string {
  const row = (cells: readonly string[]) => `| ${cells.join(' | ')} |`
  return [
    '# States of ownership',
    '',
    '<!-- Generated from src/domain/ownership.ts by `npm run generate`. -->',
    '',
    '```mermaid',
    statesMermaid(),
    '```',
    '',
    row(HEAD),
    row(HEAD.map(() => '---')),
    ...rows().map(row),
    '',
  ].join('\n')
}
