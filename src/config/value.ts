/**
 * Hydra's grammar for the right-hand side of an override: `1e-5`, `[1,2]`, `{a: 1}`, `null`, `'quoted text'`, `plain text`.
 *
 * `parseValue` and `formatValue` are inverse: whatever is printed reads back as the same value. A comma outside brackets
 * is Hydra's sweep, which starts several runs; one command is one run here, so it is refused rather than guessed at, and
 * so are Hydra's functions. test/python/hydra_overrides.py made the values that Hydra reads, which are read alike here.
 * Departures from Hydra: `None` is null too, 0.5_2 is a text (verl's two bounds) rather than 0.52, an unquoted text may
 * hold any character, and a list may end in a comma.
 */
import { UserError } from "../util/errors.ts";

/** What an override can hold. */
export type Value = null | boolean | number | string | readonly Value[] | { readonly [key: string]: Value };

const deepest = 64;

const hydraFunctions = [
  "choice",
  "range",
  "interval",
  "glob",
  "sort",
  "shuffle",
  "tag",
  "int",
  "float",
  "str",
  "bool",
  "json_str",
  "extend_list",
];

/** Read the text after `=`; throws a `UserError` that quotes it. */
export function parseValue(text: string): Value {
  const trimmed = text.trim();
  if (trimmed === "") return "";
  const called = /^(\w+)\(.*\)$/s.exec(trimmed)?.[1]?.toLowerCase() ?? "";
  if (hydraFunctions.includes(called)) {
    throw new UserError(
      `${trimmed} calls ${called}, a function of Hydra that is not there. Write the value itself, or quotes around a text.`,
    );
  }
  const reader = new Reader(text);
  const value = reader.element(",", 0);
  if (reader.isDone()) return value;
  if (reader.peek() === "," && !/^[[{]/.test(trimmed)) {
    throw new UserError(
      `${trimmed} has a comma outside brackets, which in Hydra starts several runs. ` +
        `Write a list as [${trimmed}], or put quotes around a text: '${trimmed}' (and quotes for the shell around that).`,
    );
  }
  throw reader.problem(`there is more text after the end of the value: ${reader.rest()}`);
}

/** The text that `parseValue` reads back as this value. */
export function formatValue(value: unknown): string {
  if (value === null || value === undefined) return "null";
  if (typeof value === "number") return formatNumber(value);
  if (typeof value === "string") return isPlain(value) ? value : quote(value);
  if (Array.isArray(value)) return `[${value.map(formatValue).join(",")}]`;
  if (typeof value === "function") return "a function";
  if (typeof value !== "object") return String(value);
  const entries = Object.entries(value).map(([key, item]) => `${isPlain(key) ? key : quote(key)}:${formatValue(item)}`);
  return `{${entries.join(",")}}`;
}

function formatNumber(value: number): string {
  if (Number.isNaN(value)) return "nan";
  if (!Number.isFinite(value)) return value > 0 ? "inf" : "-inf";
  return Object.is(value, -0) ? "-0.0" : String(value);
}

/** Text that needs no quotes anywhere, also not inside a list or as a key. */
function isPlain(text: string): boolean {
  return /^[\w./+*@?%|~-]+$/.test(text) && typeof primitive(text) === "string";
}

/** Backslashes are literal except in front of a quote, where each is doubled. */
function quote(text: string): string {
  return `'${text.replace(/(\\*)('|$)/g, (_, slashes: string, end: string) => `${slashes}${slashes}${end === "'" ? "\\'" : ""}`)}'`;
}

/** What an unquoted text means. */
function primitive(text: string): Value {
  if (/^null$/i.test(text) || text === "None") return null;
  if (/^true$/i.test(text)) return true;
  if (/^false$/i.test(text)) return false;
  if (/^[+-]?(0|[1-9]\d*(_\d+)*)$/.test(text)) return Number(text.replaceAll("_", "")) + 0; // -0 is an integer: 0
  if (/^[+-]?(\d+\.\d*|\.\d+|\d+(?=e))(e[+-]?\d+)?$/i.test(text)) return Number(text);
  if (/^[+-]?inf$/i.test(text)) return text.startsWith("-") ? -Infinity : Infinity;
  return /^[+-]?nan$/i.test(text) ? Number.NaN : text;
}

/** A cursor over one value. */
class Reader {
  readonly #text: string;
  #at = 0;

  constructor(text: string) {
    this.#text = text;
  }

  isAtEnd(): boolean {
    return this.#at >= this.#text.length;
  }

  /** Whether nothing but space is left. */
  isDone(): boolean {
    this.#skipSpace();
    return this.isAtEnd();
  }

  peek(): string {
    return this.#text.charAt(this.#at);
  }

  rest(): string {
    return this.#text.slice(this.#at);
  }

  problem(what: string): UserError {
    return new UserError(
      `The value ${this.#text} cannot be read: ${what}. Put a text with special characters in quotes: key="'text'".`,
    );
  }

  /** One list, dict, quoted text or bare text that ends at any of `ends`. */
  element(ends: string, depth: number): Value {
    if (depth > deepest) throw this.problem(`lists and dicts are nested more than ${deepest} deep`);
    this.#skipSpace();
    const next = this.peek();
    if (next === "[") return this.#list(depth);
    if (next === "{") return this.#dict(depth);
    if (next === "'" || next === '"') return this.#quoted(next);
    const text = this.#bare(ends);
    if (text === "" && depth > 0) throw this.problem(`a value is missing before ${this.rest() || "the end"}`);
    return primitive(text);
  }

  /** Unquoted text up to one of `ends`; `\` escapes a special character and `${…}` is taken whole. */
  #bare(ends: string): string {
    let text = "";
    let length = 0; // without the space at the end, unless it is escaped
    while (!this.isAtEnd() && !ends.includes(this.peek())) {
      const rest = this.#text.slice(this.#at, this.#at + 2);
      if (rest === "${") text += this.#interpolation();
      else if (/^\\[\\()[\]{}:=, \t]$/.test(rest)) {
        text += rest.charAt(1);
        this.#at += 2;
      } else {
        text += rest.charAt(0);
        this.#at += 1;
        if (/\s/.test(rest.charAt(0))) continue;
      }
      length = text.length;
    }
    return text.slice(0, length);
  }

  #skipSpace(): void {
    while (/\s/.test(this.peek())) this.#at += 1;
  }

  #list(depth: number): Value {
    const items: Value[] = [];
    this.#at += 1;
    this.#skipSpace();
    while (this.peek() !== "]") {
      items.push(this.element(",]", depth + 1));
      this.#separator("]", "list");
    }
    this.#at += 1;
    return items;
  }

  #dict(depth: number): Value {
    const entries: [string, Value][] = [];
    this.#at += 1;
    this.#skipSpace();
    while (this.peek() !== "}") {
      const next = this.peek();
      const start = this.#at;
      const key = next === "'" || next === '"' ? this.#quoted(next) : this.#bare(":,}");
      this.#skipSpace();
      const written = this.#text.slice(start, this.#at).trim();
      if (written === "") throw this.problem(`a key is missing before ${this.rest() || "the end"}`);
      if (this.peek() !== ":") throw this.problem(`the dict has no : after ${written}`);
      this.#at += 1;
      entries.push([key, this.element(",}", depth + 1)]);
      this.#separator("}", "dict");
    }
    this.#at += 1;
    return Object.fromEntries(entries);
  }

  /** Step over `,`, or stop in front of the closing bracket. */
  #separator(close: string, what: string): void {
    this.#skipSpace();
    if (this.peek() === close) return;
    if (this.isAtEnd()) throw this.problem(`the ${what} has no closing ${close}`);
    if (this.peek() !== ",") throw this.problem(`a comma is missing before ${this.rest()}`);
    this.#at += 1;
    this.#skipSpace();
    if (this.isAtEnd()) throw this.problem(`the ${what} has no closing ${close}`);
  }

  #quoted(mark: string): string {
    let text = "";
    for (this.#at += 1; ; ) {
      const start = this.#at;
      while (this.peek() === "\\") this.#at += 1;
      const slashes = this.#at - start;
      if (this.isAtEnd()) throw this.problem(`the text has no closing ${mark}`);
      const next = this.peek();
      this.#at += 1;
      if (next !== mark) text += "\\".repeat(slashes) + next;
      else if (slashes % 2 === 1) text += "\\".repeat((slashes - 1) / 2) + mark;
      else return text + "\\".repeat(slashes / 2);
    }
  }

  #interpolation(): string {
    const start = this.#at;
    let open = 0;
    while (!this.isAtEnd()) {
      if (this.peek() === "{") open += 1;
      if (this.peek() === "}") open -= 1;
      this.#at += 1;
      if (open === 0 && this.#at - start > 1) return this.#text.slice(start, this.#at);
    }
    throw this.problem(`an interpolation $\{ has no closing }`);
  }
}
