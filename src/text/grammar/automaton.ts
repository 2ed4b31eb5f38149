/**
 * Matches bytes against a rule, one byte at a time.
 *
 * A state is the set of all stacks of rules that may follow, so that no decision is taken before the text decides it.
 * States are values: they can be kept, shared and continued in several ways. Equal states are one object, and each
 * keeps the states that follow it, so what was computed for one text is there for the next.
 *
 * Options that can never end (a value that must contain itself) are never entered: from every state some text leads to
 * the end.
 */
import { UserError } from "../../util/errors.ts";
import type { Rule } from "./rule.ts";

/** A stack of rules that must follow each other: this one after `count` of its parts or repetitions, then `rest`. */
type Stack = {
  readonly id: number;
  readonly rule: Rule;
  readonly count: number;
  readonly rest: Stack | null;
  /** The stacks with one rule more, by rule and count. */
  readonly above: Map<number, Stack>;
};

export type State = {
  /** Stacks that begin with a set of bytes. */
  readonly heads: readonly Stack[];
  /** The text may end here. */
  readonly isComplete: boolean;
  /** By byte: undefined is not computed yet, null means that the byte may not follow. */
  readonly next: (State | null | undefined)[];
};

/** States that are kept; they are dropped together when there are more. */
const MOST_STATES = 10_000;

/** Stacks that may be visited between two calls of `allowWork`: less than a second. */
const MOST_VISITS = 200_000;

export class Automaton {
  readonly #live: ReadonlySet<Rule>;
  readonly #ruleIds = new Map<Rule, number>();
  readonly #bottom: Stack;
  readonly #root: Rule;
  #states = new Map<string, State>();
  #nextStack = 1;
  #visits = 0;

  constructor(root: Rule) {
    this.#root = root;
    this.#live = liveRules(root);
    this.#bottom = { id: 0, rule: root, count: 0, rest: null, above: new Map() };
  }

  /** The state before the first byte; null if no text can match. */
  start(): State | null {
    if (!this.#isLive(this.#root)) return null;
    return this.#stateOf([this.#push(this.#bottom, this.#root, 0)]);
  }

  /** Start counting again the work that `after` does. */
  allowWork(): void {
    this.#visits = 0;
  }

  /** The state after one byte more; null if the byte may not follow. */
  after(state: State, byte: number): State | null {
    const known = state.next[byte];
    if (known !== undefined) return known;
    const rests: Stack[] = [];
    for (const { rule, rest } of state.heads) {
      if (rule.kind === "byte" && rule.bytes[byte] === 1 && rest !== null) rests.push(rest);
    }
    const next = rests.length === 0 ? null : this.#stateOf(rests);
    state.next[byte] = next;
    return next;
  }

  #isLive(rule: Rule): boolean {
    return rule.kind === "byte" || this.#live.has(rule);
  }

  #push(rest: Stack, rule: Rule, count: number): Stack {
    let ruleId = this.#ruleIds.get(rule);
    if (ruleId === undefined) {
      ruleId = this.#ruleIds.size;
      this.#ruleIds.set(rule, ruleId);
    }
    const key = ruleId * 2 ** 31 + count;
    let stack = rest.above.get(key);
    if (stack === undefined) {
      stack = { id: this.#nextStack++, rule, count, rest, above: new Map() };
      rest.above.set(key, stack);
    }
    return stack;
  }

  #stateOf(stacks: readonly Stack[]): State {
    const seen = new Set<Stack>();
    const heads: Stack[] = [];
    const todo = [...stacks];
    for (let stack = todo.pop(); stack !== undefined; stack = todo.pop()) {
      if (seen.has(stack)) continue;
      seen.add(stack);
      if (++this.#visits > MOST_VISITS) throw new UserError(TOO_MANY_WAYS);
      if (stack === this.#bottom) continue;
      if (stack.rule.kind === "byte") heads.push(stack);
      else this.#open(stack, stack.rest!, todo);
    }
    const isComplete = seen.has(this.#bottom);
    heads.sort((a, b) => a.id - b.id);
    const key = `${isComplete} ${heads.map(({ id }) => id).join()}`;
    const known = this.#states.get(key);
    if (known !== undefined) return known;
    if (this.#states.size >= MOST_STATES) {
      this.#states = new Map();
      this.#bottom.above.clear(); // states that are still in use keep their own stacks
    }
    const state: State = { heads, isComplete, next: new Array<State | null | undefined>(256).fill(undefined) };
    this.#states.set(key, state);
    return state;
  }

  /** Add to `todo` what a stack becomes when its first rule is opened. */
  #open({ rule, count }: Stack, rest: Stack, todo: Stack[]): void {
    switch (rule.kind) {
      case "sequence": {
        const last = rule.parts.length - 1;
        if (count > last) todo.push(rest);
        else todo.push(this.#push(count === last ? rest : this.#push(rest, rule, count + 1), rule.parts[count]!, 0));
        return;
      }
      case "choice":
        for (const option of rule.options) if (this.#isLive(option)) todo.push(this.#push(rest, option, 0));
        return;
      case "repeat": {
        if (count >= rule.least) todo.push(rest);
        if (count >= rule.most || !this.#isLive(rule.item)) return;
        const next = rule.most === Number.POSITIVE_INFINITY ? Math.min(count + 1, rule.least) : count + 1;
        todo.push(this.#push(this.#push(rest, rule, next), rule.item, 0));
        return;
      }
      case "reference":
        todo.push(this.#push(rest, rule.target!, 0));
        return;
      case "byte":
        return;
      default:
        rule satisfies never;
    }
  }
}

const TOO_MANY_WAYS =
  "The text can be read in too many ways by this schema, so the tokens that may follow cannot be found in time. " +
  "Write its `pattern` and `anyOf` so that the first characters decide which part of them is meant.";

/** The rules that some text of finite length matches; sets of bytes always do, and are left out. */
function liveRules(root: Rule): Set<Rule> {
  const users = new Map<Rule, Set<Rule>>();
  const all = new Set<Rule>([root]);
  for (const rule of all) {
    for (const part of partsOf(rule)) {
      if (part.kind === "byte") continue; // always live
      all.add(part); // a set that is walked also gives what is added meanwhile
      const known = users.get(part);
      if (known === undefined) users.set(part, new Set([rule]));
      else known.add(rule);
    }
  }
  const live = new Set<Rule>();
  const todo = [...all];
  for (let rule = todo.pop(); rule !== undefined; rule = todo.pop()) {
    if (live.has(rule) || !isLive(rule, live)) continue;
    live.add(rule);
    for (const user of users.get(rule) ?? []) todo.push(user);
  }
  return live;
}

function partsOf(rule: Rule): readonly Rule[] {
  switch (rule.kind) {
    case "byte":
      return [];
    case "sequence":
      return rule.parts;
    case "choice":
      return rule.options;
    case "repeat":
      return [rule.item];
    case "reference":
      return rule.target === null ? [] : [rule.target];
    default:
      return rule satisfies never;
  }
}

function isLive(rule: Rule, live: ReadonlySet<Rule>): boolean {
  switch (rule.kind) {
    case "byte":
      return true;
    case "sequence":
      return rule.parts.every((part) => part.kind === "byte" || live.has(part));
    case "choice":
      return rule.options.some((option) => option.kind === "byte" || live.has(option));
    case "repeat":
      return rule.least === 0 || rule.item.kind === "byte" || live.has(rule.item);
    case "reference":
      return rule.target !== null && live.has(rule.target);
    default:
      return rule satisfies never;
  }
}
