/**
 * A grammar over the tokens of a vocabulary: which tokens may follow, and the state after one of them.
 *
 * States are values, so samples of one prompt start from the same one and go their own ways. The tokens of a state are
 * computed once. No token that ends a sample is among them: whether a sample may end is `isComplete`.
 */
import { invariant, UserError } from "../../util/errors.ts";
import { Automaton, type State } from "./automaton.ts";
import type { Rule } from "./rule.ts";
import { hasToken, type TokenSet, type TokenTable, tokensAfter } from "./token-table.ts";

export type GrammarState = {
  /** The text may end here. */
  readonly isComplete: boolean;
  /** The tokens that may follow; empty only if the text must end here. */
  allowed(): TokenSet;
  /** The state after an allowed token. */
  after(id: number): GrammarState;
};

/** The state before the first token. */
export type Grammar = GrammarState;

/** Sets of tokens that a grammar keeps; they are dropped together when there are more. */
const MOST_SETS = 256;

/** A rule over a vocabulary. */
export function grammarOf(rule: Rule, table: TokenTable): Grammar {
  const automaton = new Automaton(rule);
  let sets = new Map<State, TokenSet>();
  const allowedAfter = (state: State): TokenSet => {
    let set = sets.get(state);
    if (set !== undefined) return set;
    automaton.allowWork();
    set = tokensAfter(automaton, state, table);
    if (set.count === 0 && !state.isComplete) throw new UserError(NO_TOKEN);
    if (sets.size >= MOST_SETS) sets = new Map();
    sets.set(state, set);
    return set;
  };
  const wrap = (state: State): GrammarState => ({
    isComplete: state.isComplete,
    allowed: () => allowedAfter(state),
    after(id) {
      const bytes = table.bytesOf[id] ?? null;
      let next: State | null = bytes === null ? null : state;
      for (const byte of bytes ?? []) next = next && automaton.after(next, byte);
      invariant(next !== null, `token ${id} may follow`);
      return wrap(next);
    },
  });
  const start = automaton.start();
  if (start === null) throw new UserError("No value can ever match this schema: it must contain itself.");
  const grammar = wrap(start);
  grammar.allowed(); // an error shows now
  return grammar;
}

export { hasToken, type TokenSet };

const NO_TOKEN =
  "The grammar asks for a character that no token of this model's tokenizer contains, so no token may follow. " +
  "Use ASCII characters in the schema, or another model.";
