/**
 * Regular expressions (`pattern`) as rules for the content of a JSON string.
 *
 * Supported is what is regular in ECMAScript's syntax: characters, classes, groups, alternatives, quantifiers, `^` at
 * the beginning and `$` at the end. Lookaround, back references, word boundaries and named classes are refused.
 */
import { UserError } from "../../util/errors.ts";
import { anyChar, stringChar } from "./json-text.ts";
import { type CharRange, choice, EVERY_CHAR, literal, type Rule, repeat, sequence, without } from "./rule.ts";

const DIGIT: readonly CharRange[] = [[0x30, 0x39]];
const WORD: readonly CharRange[] = [
  [0x30, 0x39],
  [0x41, 0x5a],
  [0x5f, 0x5f],
  [0x61, 0x7a],
];
const SPACE: readonly CharRange[] = [
  [0x09, 0x0d],
  [0x20, 0x20],
  [0xa0, 0xa0],
  [0x1680, 0x1680],
  [0x2000, 0x200a],
  [0x2028, 0x2029],
  [0x202f, 0x202f],
  [0x205f, 0x205f],
  [0x3000, 0x3000],
  [0xfeff, 0xfeff],
];
const NEWLINE: readonly CharRange[] = [
  [0x0a, 0x0a],
  [0x0d, 0x0d],
  [0x2028, 0x2029],
];
const classes: Readonly<Record<string, readonly CharRange[]>> = {
  d: DIGIT,
  D: without(EVERY_CHAR, DIGIT),
  w: WORD,
  W: without(EVERY_CHAR, WORD),
  s: SPACE,
  S: without(EVERY_CHAR, SPACE),
};
const controls: Readonly<Record<string, number>> = { n: 0x0a, r: 0x0d, t: 0x09, f: 0x0c, v: 0x0b, "0": 0 };

/** A pattern that is not supported; the message says which part of it. */
export class PatternError extends UserError {}

const MOST_LENGTH = 2000;
const MOST_DEPTH = 100;

/** The strings in which a pattern is found, without quotes. */
export function regexRule(pattern: string): Rule {
  if (pattern.length > MOST_LENGTH)
    throw new PatternError(`it has ${pattern.length} characters, and ${MOST_LENGTH} are possible`);
  try {
    new RegExp(pattern, "u");
  } catch {
    try {
      new RegExp(pattern);
    } catch {
      throw new PatternError("it is not a regular expression");
    }
  }
  return new Parser(pattern).parse();
}

class Parser {
  readonly #chars: readonly string[];
  #at = 0;
  #depth = 0;

  constructor(pattern: string) {
    this.#chars = [...pattern];
  }

  parse(): Rule {
    const options = [this.#whole()];
    while (this.#take("|")) options.push(this.#whole());
    if (this.#at < this.#chars.length) this.#fail(`\`${this.#chars[this.#at]}\` has no partner`);
    return choice(options);
  }

  /** An alternative of the whole pattern: without `^` or `$` anything may stand before or after it. */
  #whole(): Rule {
    const anything = repeat(anyChar);
    const start = this.#take("^") ? [] : [anything];
    const parts = this.#parts();
    return sequence(...start, ...parts, ...(this.#take("$") ? [] : [anything]));
  }

  #parts(): Rule[] {
    const parts: Rule[] = [];
    for (let char = this.#peek(); char !== undefined && !"|)".includes(char); char = this.#peek()) {
      if (char === "$" && this.#depth === 0 && [undefined, "|"].includes(this.#chars[this.#at + 1])) break;
      parts.push(this.#quantified(this.#atom()));
    }
    return parts;
  }

  #alternatives(): Rule {
    const options: Rule[] = [];
    do options.push(sequence(literal(""), ...this.#parts()));
    while (this.#take("|"));
    return choice(options);
  }

  #atom(): Rule {
    const char = this.#next();
    if (char === "(") return this.#group();
    if (char === "[") return stringChar(this.#class());
    if (char === ".") return stringChar(without(EVERY_CHAR, NEWLINE));
    if (char === "\\") return stringChar(this.#escape());
    if (char === "^" || char === "$") this.#fail(`\`${char}\` is only possible at the beginning or the end`);
    return stringChar([pointRange(char)]);
  }

  #group(): Rule {
    if (this.#take("?")) {
      if (this.#take("<")) {
        if (this.#peek() === "=" || this.#peek() === "!") this.#fail("lookbehind `(?<` is not possible");
        while (this.#next() !== ">");
      } else if (!this.#take(":")) this.#fail(`\`(?${this.#peek() ?? ""}\` is not possible, only \`(?:\``);
    }
    if (++this.#depth > MOST_DEPTH) this.#fail(`it is nested more than ${MOST_DEPTH} deep`);
    const rule = this.#alternatives();
    this.#depth--;
    if (!this.#take(")")) this.#fail("a group is not closed");
    return rule;
  }

  #quantified(item: Rule): Rule {
    const bounds = this.#quantifier();
    if (bounds === null) return item;
    this.#take("?"); // lazy or not, the same strings match
    return repeat(item, ...bounds);
  }

  #quantifier(): [least: number, most: number] | null {
    if (this.#take("*")) return [0, Number.POSITIVE_INFINITY];
    if (this.#take("+")) return [1, Number.POSITIVE_INFINITY];
    if (this.#take("?")) return [0, 1];
    const [all, least, comma, most] =
      /^\{(\d+)(,?)(\d*)\}/.exec(this.#chars.slice(this.#at, this.#at + 24).join("")) ?? [];
    if (all === undefined) return null;
    this.#at += all.length;
    return [Number(least), comma === "" ? Number(least) : most === "" ? Number.POSITIVE_INFINITY : Number(most)];
  }

  #class(): readonly CharRange[] {
    const isNegated = this.#take("^");
    const ranges: CharRange[] = [];
    while (!this.#take("]")) {
      const first = this.#classAtom();
      const isRange = this.#peek() === "-" && this.#chars[this.#at + 1] !== "]";
      if (!isRange || first.length !== 1 || first[0]![0] !== first[0]![1]) {
        ranges.push(...first);
        continue;
      }
      this.#next();
      const last = this.#classAtom();
      ranges.push([first[0]![0], last[0]![1]]);
    }
    const result = isNegated ? without(EVERY_CHAR, ranges) : ranges;
    if (result.length === 0) this.#fail("a class is empty");
    return result;
  }

  #classAtom(): readonly CharRange[] {
    const char = this.#next();
    return char === "\\" ? this.#escape(true) : [pointRange(char)];
  }

  #escape(isInClass = false): readonly CharRange[] {
    const char = this.#next();
    const known = classes[char];
    if (known !== undefined) return known;
    if (isInClass && char === "b") return [[8, 8]];
    const control = controls[char];
    if (control !== undefined) return [[control, control]];
    if (char === "x" || char === "u") return [this.#hex(char === "x" ? 2 : 4)];
    if (/[a-z1-9]/i.test(char)) this.#fail(`\`\\${char}\` is not possible`);
    return [pointRange(char)];
  }

  #hex(digits: number): CharRange {
    const rest = this.#chars.slice(this.#at, this.#at + 12).join("");
    const [all, braced, plain] = new RegExp(`^(?:\\{([0-9a-f]+)\\}|([0-9a-f]{${digits}}))`, "i").exec(rest) ?? [];
    if (all === undefined) this.#fail("an escaped character has no number");
    this.#at += all.length;
    const point = Number.parseInt(braced ?? plain ?? "", 16);
    return [point, point];
  }

  #peek(): string | undefined {
    return this.#chars[this.#at];
  }

  #next(): string {
    return this.#chars[this.#at++] ?? this.#fail("it ends too early");
  }

  #take(char: string): boolean {
    if (this.#peek() !== char) return false;
    this.#at++;
    return true;
  }

  #fail(why: string): never {
    throw new PatternError(why);
  }
}

function pointRange(char: string): CharRange {
  const point = char.codePointAt(0)!;
  return [point, point];
}
