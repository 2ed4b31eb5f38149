/**
 * OmegaConf's interpolations: `${a.b}`, `${.sibling}`, `${list[0]}`, `${oc.select:a.b,default}`, `${oc.env:NAME,default}`,
 * `${oc.decode:text}`.
 *
 * A text that is one interpolation takes the value with its type; inside a longer text the value is written out as Python
 * would. Departures from OmegaConf: the default of `oc.env` keeps its type, and null cannot be inside a text.
 */
import { UserError } from "../util/errors.ts";
import { formatValue, parseValue } from "./value.ts";

/** Where interpolations look things up. */
export type Scope = {
  /** The value of an absolute key, itself without interpolations; throws a `UserError` for a key that is not there. */
  get(key: string): unknown;
  has(key: string): boolean;
  readonly env: Readonly<Record<string, string | undefined>>;
};

/** Whether a value has an interpolation anywhere in it. */
export function hasInterpolation(value: unknown): boolean {
  if (typeof value === "string") return value.includes("${");
  if (Array.isArray(value)) return value.some(hasInterpolation);
  return isDict(value) && Object.values(value).some(hasInterpolation);
}

/** Replace every interpolation in the value of `key`. */
export function interpolate(value: unknown, key: string, scope: Scope): unknown {
  if (typeof value === "string") return value.includes("${") ? expand(value, key, scope) : value;
  if (Array.isArray(value)) return value.map((item, index) => interpolate(item, `${key}.${index}`, scope));
  if (!isDict(value)) return value;
  const entries = Object.entries(value);
  return Object.fromEntries(entries.map(([name, item]) => [name, interpolate(item, `${key}.${name}`, scope)]));
}

/** Whether a value is a plain dict rather than a list, a function or an object of some class. */
export function isDict(value: unknown): value is Readonly<Record<string, unknown>> {
  if (typeof value !== "object" || value === null) return false;
  const prototype: unknown = Object.getPrototypeOf(value);
  return prototype === Object.prototype || prototype === null || isForeignDict(prototype);
}

/** A dict of another realm (a config file evaluated elsewhere) has another `Object.prototype`. */
function isForeignDict(prototype: unknown): boolean {
  return typeof prototype === "object" && Object.getPrototypeOf(prototype) === null && !Array.isArray(prototype);
}

function expand(text: string, key: string, scope: Scope): unknown {
  const pieces: unknown[] = [];
  let literal = "";
  for (let at = 0; at < text.length; ) {
    if (text.startsWith("\\${", at)) {
      literal += "${";
      at += 3;
    } else if (text.startsWith("${", at)) {
      const end = closing(text, at + 2, key);
      if (literal !== "") pieces.push(literal);
      literal = "";
      pieces.push({ inner: text.slice(at + 2, end) });
      at = end + 1;
    } else {
      literal += text.charAt(at);
      at += 1;
    }
  }
  if (literal !== "") pieces.push(literal);
  const values = pieces.map((piece) => (isInner(piece) ? evaluate(piece.inner, key, scope) : piece));
  return values.length === 1 ? values[0] : values.map((value) => inText(value, text, key)).join("");
}

function isInner(piece: unknown): piece is { inner: string } {
  return typeof piece === "object" && piece !== null && "inner" in piece;
}

function closing(text: string, from: number, key: string): number {
  let open = 1;
  for (let at = from; at < text.length; at++) {
    if (text[at] === "{") open += 1;
    if (text[at] === "}") open -= 1;
    if (open === 0) return at;
  }
  throw new UserError(
    `\`${key}\` is ${text}, where a \${ has no closing }. Add it, or write \\\${ for the characters themselves.`,
  );
}

function evaluate(inner: string, key: string, scope: Scope): unknown {
  const text = inner.includes("${") ? String(expand(inner, key, scope)) : inner;
  const call = /^\s*([\w.]+)\s*:(.*)$/s.exec(text);
  if (call === null) return scope.get(absolute(text.trim(), key));
  const [, resolver = "", rest = ""] = call;
  const comma = rest.indexOf(",");
  const name = (comma === -1 ? rest : rest.slice(0, comma)).trim();
  const fallback = comma === -1 ? undefined : parseValue(rest.slice(comma + 1));
  if (resolver === "oc.select") {
    const target = absolute(name, key);
    return scope.has(target) ? scope.get(target) : (fallback ?? null);
  }
  if (resolver === "oc.decode") return parseValue(String(parseValue(rest) ?? "null"));
  if (resolver === "oc.env") {
    const found = scope.env[name] ?? fallback;
    if (found !== undefined) return found;
    throw new UserError(
      `\`${key}\` takes the environment variable ${name}, which is not set. Set it, or give a default: \${oc.env:${name},value}.`,
    );
  }
  throw new UserError(
    `\`${key}\` uses \${${text}}, and there is no resolver \`${resolver}\`. Use \${some.key}, \${oc.select:some.key,default}, \${oc.env:NAME,default} or \${oc.decode:text}.`,
  );
}

/** `.b` seen from `a.c` is `a.b`; each further dot goes one level up. `a[0]` is `a.0`. */
function absolute(written: string, key: string): string {
  const reference = written.replace(/\[(\w+)\]/g, ".$1");
  const dots = /^\.*/.exec(reference)?.[0].length ?? 0;
  if (dots === 0) return reference;
  return [...key.split(".").slice(0, -dots), reference.slice(dots)].filter((part) => part !== "").join(".");
}

function inText(value: unknown, text: string, key: string): string {
  if (typeof value === "string") return value;
  if (typeof value === "boolean") return value ? "True" : "False";
  if (typeof value === "number") return asPython(value);
  throw new UserError(
    `\`${key}\` is ${text}, and a value in it is ${formatValue(value)}, which cannot be inside a text. Set that key to a text or a number.`,
  );
}

/** A number as Python writes it: 1e-06 rather than 0.000001. */
function asPython(value: number): string {
  const size = Math.abs(value);
  if (size === 0 || !Number.isFinite(size) || (size >= 1e-4 && size < 1e16)) return formatValue(value);
  return value.toExponential().replace(/e([+-])(\d)$/, "e$10$2");
}
