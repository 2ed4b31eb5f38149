/**
 * The functions that Hugging Face's chat templates use beyond plain Jinja: `tojson`, `raise_exception`, `strftime_now`,
 * `range`.
 *
 * `tojson` is exactly Python's `json.dumps(value, ensure_ascii=False)`: models are trained on its spacing. The template
 * engine's own `tojson` differs (empty lists, exponents), and its `strip` ignores its argument, so a parsed template is
 * changed to call ours (`callPython`).
 */
import type { Environment } from "@huggingface/jinja";

/** A template called `raise_exception`: the message is the template author's. */
export class TemplateRaised extends Error {
  override readonly name = "TemplateRaised";
}

/** Declare the constants and functions that every chat template expects. */
export function declareGlobals(env: Environment, now: Date): void {
  const constants = { true: true, false: false, none: null, True: true, False: false, None: null };
  for (const [name, value] of Object.entries(constants)) env.set(name, value);
  env.set("raise_exception", (message: unknown) => {
    throw new TemplateRaised(String(message));
  });
  env.set("strftime_now", (format: string) => strftime(now, format));
  env.set("range", range);
  for (const name of stripNames) env.set(`str.${name}`, (text: unknown, chars: unknown) => strip(name, text, chars));
  env.set("json.dumps", (value: unknown, options?: unknown) => {
    const given = options instanceof Map ? options : new Map<string, unknown>();
    const separators = plainValue(given.get("separators"));
    return pythonJson(plainValue(value), {
      indent: Number(plainValue(given.get("indent")) ?? 0),
      ensureAscii: plainValue(given.get("ensure_ascii")) === true,
      sortKeys: plainValue(given.get("sort_keys")) === true,
      separators: Array.isArray(separators) ? [String(separators[0]), String(separators[1])] : null,
    });
  });
}

/** Let a parsed template call our functions: `x | tojson(indent=4)` and `x.strip("y")` become plain calls. */
export function callPython(node: unknown): void {
  if (typeof node !== "object" || node === null) return;
  for (const child of Object.values(node)) callPython(child);
  const { type, operand, filter, callee, args } = node as AnyNode;
  if (type === "FilterExpression" && (filter?.callee ?? filter)?.value === "tojson") {
    Object.assign(node, callOf("json.dumps", [operand, ...(filter?.args ?? [])]));
  }
  const method = callee?.type === "MemberExpression" ? String(callee.property?.value) : "";
  if (type === "CallExpression" && args?.length === 1 && stripNames.some((name) => name === method)) {
    Object.assign(node, callOf(`str.${method}`, [callee?.object, ...args]));
  }
}

// The template engine does not export its node types. These are the fields that are read above; each may be missing.
type AnyNode = {
  readonly type?: string;
  readonly value?: unknown;
  readonly operand?: unknown;
  readonly filter?: AnyNode;
  readonly callee?: AnyNode;
  readonly object?: unknown;
  readonly property?: AnyNode;
  readonly args?: readonly unknown[];
};

/** The name has a dot, so no variable of a template can have it. */
function callOf(name: string, args: readonly unknown[]): object {
  return { type: "CallExpression", callee: { type: "Identifier", value: name }, args };
}

const stripNames = ["strip", "lstrip", "rstrip"] as const;

function strip(name: (typeof stripNames)[number], text: unknown, chars: unknown): string {
  if (typeof text !== "string") throw new Error(`${name} is for text`);
  const letters = [...text];
  const given = new Set(typeof chars === "string" ? chars : " \t\n\v\f\r");
  let from = 0;
  let to = letters.length;
  while (name !== "rstrip" && from < to && given.has(letters[from]!)) from++;
  while (name !== "lstrip" && to > from && given.has(letters[to - 1]!)) to--;
  return letters.slice(from, to).join("");
}

/** The engine passes its own wrappers, with the plain value in `value`; maps and lists contain wrappers too. */
function plainValue(wrapped: unknown): unknown {
  if (wrapped instanceof Map) return new Map([...wrapped].map(([key, value]) => [key, plainValue(value)]));
  if (Array.isArray(wrapped)) return wrapped.map(plainValue);
  if (typeof wrapped === "object" && wrapped !== null && "value" in wrapped) return plainValue(wrapped.value);
  return wrapped ?? null; // its none has the value undefined
}

type JsonOptions = {
  readonly indent: number;
  readonly ensureAscii: boolean;
  readonly sortKeys: boolean;
  readonly separators: readonly [string, string] | null;
};

function pythonJson(value: unknown, options: JsonOptions, depth = 0): string {
  if (typeof value === "string") return quote(value, options.ensureAscii);
  if (typeof value === "number") return pythonNumber(value);
  if (typeof value === "boolean" || value === null) return String(value);
  const [comma, colon] = options.separators ?? [options.indent > 0 ? "," : ", ", ": "];
  const enclose = (open: string, items: readonly string[], close: string): string => {
    if (items.length === 0) return open + close;
    if (options.indent === 0) return open + items.join(comma) + close;
    const line = `\n${" ".repeat(options.indent * depth)}`;
    const inner = line + " ".repeat(options.indent);
    return open + inner + items.join(comma + inner) + line + close;
  };
  if (Array.isArray(value)) {
    const items = value.map((item) => pythonJson(item, options, depth + 1));
    return enclose("[", items, "]");
  }
  if (!(value instanceof Map)) throw new Error("only text, numbers, lists and mappings can be written as JSON");
  const entries = [...value];
  if (options.sortKeys) entries.sort(([a], [b]) => (a < b ? -1 : 1));
  const items = entries.map(
    ([key, item]) => quote(String(key), options.ensureAscii) + colon + pythonJson(item, options, depth + 1),
  );
  return enclose("{", items, "}");
}

function quote(text: string, ensureAscii: boolean): string {
  const quoted = JSON.stringify(text);
  if (!ensureAscii) return quoted;
  return quoted.replace(/[^\0-~]/g, (char) => `\\u${char.charCodeAt(0).toString(16).padStart(4, "0")}`);
}

/** Python writes an exponent for numbers below 1e-4 and from 1e16 on, with at least two digits. */
function pythonNumber(value: number): string {
  if (Number.isInteger(value)) return BigInt(value).toString();
  const [digits, exponent] = value.toExponential().split("e");
  const power = Number(exponent);
  if (!Number.isFinite(value) || (power >= -4 && power < 16)) return String(value);
  return `${digits}e${power < 0 ? "-" : "+"}${String(Math.abs(power)).padStart(2, "0")}`;
}

function range(from: number, to?: number, step = 1): number[] {
  const [start, stop] = to === undefined ? [0, from] : [from, to];
  return Array.from({ length: Math.max(0, Math.ceil((stop - start) / step)) }, (_, i) => start + i * step);
}

const days = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];
const months = "January February March April May June July August September October November December".split(" ");

/** Python's `strftime` in the C locale, for the usual directives of dates and times. */
function strftime(now: Date, format: string): string {
  const two = (value: number) => String(value).padStart(2, "0");
  const day = days[now.getDay()]!;
  const month = months[now.getMonth()]!;
  const dayOfYear =
    1 + Math.round((new Date(now).setHours(0, 0, 0, 0) - new Date(now.getFullYear(), 0).getTime()) / 864e5);
  const directives: Record<string, string | undefined> = {
    Y: String(now.getFullYear()),
    y: two(now.getFullYear() % 100),
    m: two(now.getMonth() + 1),
    B: month,
    b: month.slice(0, 3),
    d: two(now.getDate()),
    e: String(now.getDate()).padStart(2),
    j: String(dayOfYear).padStart(3, "0"),
    A: day,
    a: day.slice(0, 3),
    H: two(now.getHours()),
    I: two(now.getHours() % 12 || 12),
    p: now.getHours() < 12 ? "AM" : "PM",
    M: two(now.getMinutes()),
    S: two(now.getSeconds()),
    "%": "%",
  };
  // `%-d` is glibc's `%d` without the leading zero.
  return format.replace(/%(-?)([a-zA-Z%])/g, (whole, dash, letter) => {
    const text = directives[letter];
    if (text === undefined) throw new Error(`strftime_now("${format}") has the unknown directive ${whole}`);
    return dash === "" ? text : text.replace(/^[0 ]+(?=.)/, "");
  });
}
