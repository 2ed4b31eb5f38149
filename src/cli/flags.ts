/**
 * Options such as `--port 8000` for verbs that take no config: one table gives the values, their checks and the help.
 *
 * `--name value` and `--name=value` are the same; a flag of the kind `switch` has no value. Names are vLLM's where it
 * has such an option.
 */
import { nearest, UserError } from "../util/errors.ts";

/**
 * One option: `text` as it is, `count` a whole number from `least` to `most`, `choice` one of a list. A `number` is above
 * 0 unless `least` is given, and at most `most`.
 */
export type Flag =
  | { readonly kind: "text"; readonly value: string; readonly doc: string; readonly mayBeEmpty?: boolean }
  | { readonly kind: "switch"; readonly doc: string }
  | {
      readonly kind: "count";
      readonly least: number;
      readonly most?: number;
      readonly fallback?: number;
      readonly doc: string;
    }
  | {
      readonly kind: "number";
      readonly least?: number;
      readonly most?: number;
      readonly fallback?: number;
      readonly doc: string;
    }
  | { readonly kind: "choice"; readonly of: readonly string[]; readonly doc: string };

export type Flags = Readonly<Record<string, Flag>>;

type ValueOf<F extends Flag> = F extends { kind: "switch" }
  ? boolean
  : F extends { kind: "text" }
    ? string | undefined
    : F extends { kind: "choice"; of: readonly (infer C)[] }
      ? C
      : F extends { fallback: number }
        ? number
        : number | undefined;

export type FlagValues<T extends Flags> = { readonly [K in keyof T]: ValueOf<T[K]> };

export type Parsed<T extends Flags> = {
  readonly flags: FlagValues<T>;
  /** The arguments that are no options. */
  readonly words: readonly string[];
  readonly isHelp: boolean;
};

/** Read the arguments of a verb by its table. */
export function parseFlags<const T extends Flags>(table: T, args: readonly string[]): Parsed<T> {
  const values: Record<string, unknown> = {};
  for (const [name, flag] of Object.entries(table)) values[name] = defaultOf(flag);
  const words: string[] = [];
  const queue = [...args];
  let isHelp = false;
  for (let argument = queue.shift(); argument !== undefined; argument = queue.shift()) {
    if (argument === "--help" || argument === "-h") isHelp = true;
    else if (!argument.startsWith("-") || argument === "-") words.push(argument);
    else readFlag(table, argument, { queue, values });
  }
  return { flags: values as FlagValues<T>, words, isHelp }; // every name of the table has a value of its kind
}

function defaultOf(flag: Flag): unknown {
  if (flag.kind === "switch") return false;
  if (flag.kind === "choice") return flag.of[0];
  return "fallback" in flag ? flag.fallback : undefined;
}

function readFlag(table: Flags, argument: string, rest: { queue: string[]; values: Record<string, unknown> }): void {
  const equals = argument.indexOf("=");
  const written = equals < 0 ? argument : argument.slice(0, equals);
  const name = written.replace(/^--/, "").replaceAll("_", "-");
  const flag = Object.hasOwn(table, name) && written.startsWith("--") ? table[name] : undefined;
  if (flag === undefined) {
    const known = [...Object.keys(table).map((it) => `--${it}`), "--help"];
    const [close] = nearest(written, known, 1);
    throw new UserError(
      `\`${written}\` is no option.${close === undefined ? "" : ` Did you mean ${close}?`} --help lists them.`,
    );
  }
  if (flag.kind === "switch") {
    if (equals >= 0) throw new UserError(`\`${written}\` takes no value. Write ${written} alone, or leave it out.`);
    rest.values[name] = true;
    return;
  }
  const text = equals < 0 ? rest.queue.shift() : argument.slice(equals + 1);
  const isEmpty = text === "" && !(flag.kind === "text" && flag.mayBeEmpty === true);
  if (text === undefined || isEmpty || (equals < 0 && text.startsWith("--"))) {
    throw new UserError(`\`${written}\` has no value. Write ${written} ${placeholder(flag)}.`);
  }
  rest.values[name] = readValue(flag, text, written);
}

function readValue(flag: Exclude<Flag, { kind: "switch" }>, text: string, written: string): string | number {
  if (flag.kind === "text") return text;
  const wrong = (should: string) => new UserError(`\`${written}\` is "${text}"; it should be ${should}.`);
  if (flag.kind === "choice") {
    if (!flag.of.includes(text)) throw wrong(`one of ${flag.of.join(", ")}`);
    return text;
  }
  const value = Number(text.trim() || Number.NaN);
  if (flag.kind === "number") {
    const { least, most = Number.POSITIVE_INFINITY } = flag;
    const isInRange = (least === undefined ? value > 0 : value >= least) && value <= most;
    if (!Number.isFinite(value) || !isInRange) throw wrong(rangeOf(flag));
    return value;
  }
  const { least, most } = flag;
  if (!Number.isSafeInteger(value) || value < least || value > (most ?? value))
    throw wrong(most === undefined ? `a whole number of at least ${least}` : `a whole number from ${least} to ${most}`);
  return value;
}

/** `a number from 0 to 1`. */
function rangeOf({ least, most }: Extract<Flag, { kind: "number" }>): string {
  if (least === undefined) return most === undefined ? "a number above 0" : `a number above 0 and at most ${most}`;
  return most === undefined ? `a number of at least ${least}` : `a number from ${least} to ${most}`;
}

/** The lines of a help text, `--help` last. */
export function flagHelp(table: Flags): string {
  const rows = Object.entries(table).map(([name, flag]) => {
    const fallback = defaultOf(flag);
    const ending = flag.kind === "switch" || fallback === undefined ? "" : ` (${fallback})`;
    return [flag.kind === "switch" ? `--${name}` : `--${name} ${placeholder(flag)}`, `${flag.doc}${ending}`] as const;
  });
  rows.push(["--help", "this text"]);
  const width = Math.max(...rows.map(([left]) => left.length));
  return rows.map(([left, right]) => `  ${left.padEnd(width)}  ${right}`).join("\n");
}

function placeholder(flag: Exclude<Flag, { kind: "switch" }>): string {
  if (flag.kind === "text") return flag.value;
  return flag.kind === "choice" ? flag.of.join("|") : "N";
}
