/**
 * Shapes whose dimensions may be known only at run time.
 *
 * A dimension is a number, or a product of a whole number and symbols written in one canonical way: `batch`,
 * `4*span`, `batch*time`. Products are all that reshapes need; sums exist only between multiples of the same symbols
 * (`span + 3*span = 4*span`), which is what slicing a sequence into equal parts needs. A symbol is bound to a number
 * when the program runs, so one compiled graph serves every batch.
 */
import { GraphError, invariant } from "../util/errors.ts";

export type Dim = number | string;
export type Shape = readonly Dim[];
/** What each symbol stands for in one run. */
export type Bindings = Readonly<Record<string, number>>;

type Monomial = { readonly factor: number; readonly symbols: readonly string[] };

function parse(dim: Dim): Monomial {
  if (typeof dim === "number") return { factor: dim, symbols: [] };
  let factor = 1;
  const symbols: string[] = [];
  for (const part of dim.split("*")) {
    if (/^\d+$/.test(part)) factor *= Number(part);
    else symbols.push(part);
  }
  return { factor, symbols };
}

function write({ factor, symbols }: Monomial): Dim {
  if (symbols.length === 0 || factor === 0) return factor;
  const product = [...symbols].sort().join("*");
  return factor === 1 ? product : `${factor}*${product}`;
}

/** The canonical spelling of a dimension. */
export function dim(value: Dim): Dim {
  return write(parse(value));
}

export function times(a: Dim, b: Dim): Dim {
  const left = parse(a);
  const right = parse(b);
  return write({ factor: left.factor * right.factor, symbols: [...left.symbols, ...right.symbols] });
}

export function product(dims: Shape): Dim {
  return dims.reduce(times, 1);
}

/** `a + b`, where one is zero or both are multiples of the same symbols. */
export function plus(a: Dim, b: Dim): Dim {
  const left = parse(a);
  const right = parse(b);
  if (left.factor === 0) return b;
  if (right.factor === 0) return a;
  if (left.symbols.join("*") !== right.symbols.join("*")) throw new GraphError("", `${a} + ${b} is not a dimension`);
  return write({ factor: left.factor + right.factor, symbols: left.symbols });
}

/** `a - b`, under the same rule as `plus`. */
export function minus(a: Dim, b: Dim): Dim {
  const { factor, symbols } = parse(b);
  if (factor === 0) return a;
  const left = parse(a);
  if (left.symbols.join("*") !== symbols.join("*") || left.factor < factor) {
    throw new GraphError("", `${a} - ${b} is not a dimension`);
  }
  return write({ factor: left.factor - factor, symbols });
}

/** The whole-number factor of a dimension: 4 for `4*span`. */
export function factorOf(value: Dim): number {
  return parse(value).factor;
}

/** A dimension divided by a number that divides its factor. */
export function over(value: Dim, divisor: number): Dim {
  const { factor, symbols } = parse(value);
  invariant(factor % divisor === 0, `${value} cannot be divided by ${divisor}`);
  return write({ factor: factor / divisor, symbols });
}

/** The factor and the symbols of a dimension, for those who compute it at run time. */
export function partsOf(value: Dim): Monomial {
  return parse(value);
}

/** The number a dimension stands for under `bindings`. */
export function evaluate(value: Dim, bindings: Bindings): number {
  const { factor, symbols } = parse(value);
  return symbols.reduce((total, symbol) => {
    const bound = bindings[symbol];
    if (bound === undefined) throw new GraphError("", `the dimension \`${symbol}\` of ${value} is not bound`);
    return total * bound;
  }, factor);
}

export function evaluateShape(shape: Shape, bindings: Bindings): number[] {
  return shape.map((d) => evaluate(d, bindings));
}

export function sameShape(a: Shape, b: Shape): boolean {
  return a.length === b.length && a.every((d, axis) => d === b[axis]);
}

/** The shape of an elementwise operation, by numpy's rule; null when the two do not go together. */
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
