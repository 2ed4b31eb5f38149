/**
 * Shapes whose dimensions may be known only at run time.
 *
 * A dimension is a number, or a polynomial of symbols with whole factors, written in one canonical way: `batch`,
 * `4*span`, `batch*time`, `prompts+4*span`. Equal dimensions have the same spelling, so they are compared as texts. A
 * symbol is bound to a number when the program runs, so one compiled graph serves every batch.
 */
import { GraphError, invariant } from "../util/errors.ts";

export type Dim = number | string;
export type Shape = readonly Dim[];
/** What each symbol stands for in one run. */
export type Bindings = Readonly<Record<string, number>>;

/** A whole factor and the symbols it multiplies. */
export type Term = { readonly factor: number; readonly symbols: readonly string[] };

function parse(dim: Dim): Term[] {
  if (typeof dim === "number") return [{ factor: dim, symbols: [] }];
  return dim.split("+").map((term) => {
    const parts = term.split("*");
    const isNumber = (part: string) => /^\d+$/.test(part);
    return {
      factor: parts.filter(isNumber).reduce((product, part) => product * Number(part), 1),
      symbols: parts.filter((part) => !isNumber(part)),
    };
  });
}

/** The factor of each product of symbols, sorted; no factor is 0. */
function collect(terms: readonly Term[]): [symbols: string, factor: number][] {
  const factors = new Map<string, number>();
  for (const { factor, symbols } of terms) {
    const key = [...symbols].sort().join("*");
    factors.set(key, (factors.get(key) ?? 0) + factor);
  }
  return [...factors].filter(([, factor]) => factor !== 0).sort(([a], [b]) => (a < b ? -1 : 1));
}

function write(terms: readonly Term[]): Dim {
  const sum = collect(terms);
  if (sum.every(([symbols]) => symbols === "")) return sum[0]?.[1] ?? 0;
  const spell = ([symbols, factor]: [string, number]) =>
    symbols === "" ? `${factor}` : factor === 1 ? symbols : `${factor}*${symbols}`;
  return sum.map(spell).join("+");
}

/** The canonical spelling of a dimension. */
export function dim(value: Dim): Dim {
  return write(parse(value));
}

export function times(a: Dim, b: Dim): Dim {
  const right = parse(b);
  const terms = parse(a).flatMap((x) =>
    right.map((y) => ({ factor: x.factor * y.factor, symbols: [...x.symbols, ...y.symbols] })),
  );
  return write(terms);
}

export function product(dims: Shape): Dim {
  return dims.reduce(times, 1);
}

export function plus(a: Dim, b: Dim): Dim {
  return write([...parse(a), ...parse(b)]);
}

/** `a - b`; a difference with a negative factor is not a size and is refused. */
export function minus(a: Dim, b: Dim): Dim {
  const terms = [...parse(a), ...parse(b).map((term) => ({ ...term, factor: -term.factor }))];
  if (collect(terms).some(([, factor]) => factor < 0)) throw new GraphError("", `${a} - ${b} is not a dimension`);
  return write(terms);
}

/** The largest whole number that divides every factor of a dimension: 4 for `4*span`, 2 for `2*n+4*span`. */
export function factorOf(value: Dim): number {
  return parse(value).reduce((common, { factor }) => greatestDivisor(common, factor), 0);
}

function greatestDivisor(a: number, b: number): number {
  return b === 0 ? a : greatestDivisor(b, a % b);
}

/** A dimension divided by a number that divides its factor. */
export function over(value: Dim, divisor: number): Dim {
  const terms = parse(value);
  invariant(
    terms.every(({ factor }) => factor % divisor === 0),
    `${value} cannot be divided by ${divisor}`,
  );
  return write(terms.map(({ factor, symbols }) => ({ factor: factor / divisor, symbols })));
}

/** The terms of a dimension, for code that computes it at run time. */
export function termsOf(value: Dim): readonly Term[] {
  return parse(value);
}

/** The number a dimension stands for under `bindings`. */
export function evaluate(value: Dim, bindings: Bindings): number {
  const numberOf = (symbol: string): number => {
    const bound = bindings[symbol];
    if (bound === undefined) throw new GraphError("", `the dimension \`${symbol}\` of ${value} is not bound`);
    return bound;
  };
  return parse(value).reduce(
    (sum, { factor, symbols }) => sum + symbols.reduce((product, symbol) => product * numberOf(symbol), factor),
    0,
  );
}

export function evaluateShape(shape: Shape, bindings: Bindings): number[] {
  return shape.map((d) => evaluate(d, bindings));
}

export function sameShape(a: Shape, b: Shape): boolean {
  return a.length === b.length && a.every((d, axis) => d === b[axis]);
}

/** The shape of an elementwise operation, by numpy's rule; null when the two cannot be broadcast. */
export function broadcast(a: Shape, b: Shape): Shape | null {
  const rank = Math.max(a.length, b.length);
  const result: Dim[] = [];
  for (let axis = 0; axis < rank; axis++) {
    const left = a[axis - rank + a.length] ?? 1;
    const right = b[axis - rank + b.length] ?? 1;
    if (left !== right && left !== 1 && right !== 1) return null;
    result.push(left === 1 ? right : left);
  }
  return result;
}

export function formatShape(shape: Shape): string {
  return `[${shape.join(", ")}]`;
}
