/**
 * Whether two formulas have the same value. Rational numbers are compared exactly; everything else at eight points, in
 * complex floating point: different formulas agree at all of them only with negligible probability.
 *
 * The points give every symbol positive and negative values in all combinations of three symbols, so that the root of
 * x² is not x. A formula that has no finite value at a point does not count there. Work is bounded: powers and factorials
 * that are too large are not computed exactly, and floating point takes constant time.
 */
import { type Expression, type Operation, parseExpression } from "./expression.ts";

type Rational = { readonly numerator: bigint; readonly denominator: bigint };
type Complex = readonly [re: number, im: number];

/** Whether two texts are formulas with the same value. */
export function areEqualFormulas(a: string, b: string): boolean {
  const [left, right] = [parseExpression(a), parseExpression(b)];
  return left !== null && right !== null && areEqual(left, right);
}

/** Whether two formulas have the same value. */
export function areEqual(a: Expression, b: Expression): boolean {
  const [left, right] = [exactValue(a), exactValue(b)];
  if (left !== null && right !== null) {
    return left.numerator * right.denominator === right.numerator * left.denominator;
  }
  const samples = samplesOf(a, b);
  return samples.length > 1 && samples.every(([x, y]) => isNear(x, y));
}

/**
 * The real number by which b is multiplied to give a, wherever both have a value; null if there is none. For
 * example the differences of both sides of `2x = 4` and `x = 2` have such a factor.
 */
export function ratioOf(a: Expression, b: Expression): number | null {
  const samples = samplesOf(a, b);
  const [first] = samples;
  if (first === undefined || samples.length < 2) return null;
  const [ratio] = divide(first[0], first[1]);
  if (!Number.isFinite(ratio) || ratio === 0) return null;
  return samples.every(([x, y]) => isNear(x, multiply([ratio, 0], y))) ? ratio : null;
}

/** The values of both at the points where both have one. */
function samplesOf(a: Expression, b: Expression): (readonly [Complex, Complex])[] {
  const symbols = [...new Set([...symbolsOf(a), ...symbolsOf(b)])].sort();
  return Array.from({ length: POINTS }, (_, point) => {
    const at = pointOf(symbols, point);
    return [evaluate(a, at), evaluate(b, at)] as const;
  }).filter(([x, y]) => isDefined(x) && isDefined(y));
}

/** The value of a formula without symbols as a real number, or null. */
export function realValue(expression: Expression): number | null {
  if (symbolsOf(expression).size > 0) return null;
  const [re, im] = evaluate(expression, new Map());
  return Math.abs(im) <= TOLERANCE * (1 + Math.abs(re)) && !Number.isNaN(re) ? re : null;
}

const POINTS = 8;
const TOLERANCE = 1e-9;
const isDefined = ([re, im]: Complex): boolean => Number.isFinite(re) && Number.isFinite(im);
const size = ([re, im]: Complex): number => Math.hypot(re, im);
const isNear = (a: Complex, b: Complex): boolean =>
  size(add(a, negate(b))) <= TOLERANCE * Math.max(size(a), size(b)) + 1e-12;

/** Euler's number, π, infinity and the imaginary unit; every other name is a symbol. */
const constants: ReadonlyMap<string, Complex> = new Map([
  ["e", [Math.E, 0]],
  ["pi", [Math.PI, 0]],
  ["inf", [Number.POSITIVE_INFINITY, 0]],
  ["i", [0, 1]],
]);

/** The symbols of a formula. */
function symbolsOf(expression: Expression, found = new Set<string>()): Set<string> {
  if (expression.kind === "symbol" && !constants.has(expression.name)) found.add(expression.name);
  if (expression.kind === "apply") for (const operand of expression.operands) symbolsOf(operand, found);
  return found;
}

/** A value for each symbol, between 0.7 and 1.5 in size; the bits of the point's number are the signs. */
function pointOf(symbols: readonly string[], point: number): Map<string, Complex> {
  return new Map(
    symbols.map((name, i) => {
      const fraction = ((i + 1) * 0.6180339887498949 + (point + 1) * 0.7548776662466927) % 1;
      const sign = (point >> (i % 3)) & 1 ? -1 : 1;
      return [name, [sign * (0.7 + 0.8 * fraction), 0]];
    }),
  );
}

function evaluate(expression: Expression, at: ReadonlyMap<string, Complex>): Complex {
  if (expression.kind === "number") {
    return [Number(expression.numerator) / Number(expression.denominator), 0];
  }
  if (expression.kind === "symbol") return constants.get(expression.name) ?? at.get(expression.name) ?? UNDEFINED;
  const [first = UNDEFINED, second = UNDEFINED] = expression.operands.map((operand) => evaluate(operand, at));
  return rules[expression.operation](first, second);
}

const UNDEFINED: Complex = [Number.NaN, Number.NaN];
const add = ([a, b]: Complex, [c, d]: Complex): Complex => [a + c, b + d];
const negate = ([re, im]: Complex): Complex => [-re, -im];
const multiply = ([a, b]: Complex, [c, d]: Complex): Complex =>
  b === 0 && d === 0 ? [a * c, 0] : [a * c - b * d, a * d + b * c];

function divide([a, b]: Complex, [c, d]: Complex): Complex {
  if (d === 0) return [a / c, b === 0 ? 0 : b / c];
  const scale = c * c + d * d;
  return [(a * c + b * d) / scale, (b * c - a * d) / scale];
}

const exp = ([re, im]: Complex): Complex =>
  im === 0 ? [Math.exp(re), 0] : [Math.exp(re) * Math.cos(im), Math.exp(re) * Math.sin(im)];
const ln = (z: Complex): Complex => [Math.log(size(z)), Math.atan2(z[1], z[0])];

function power(base: Complex, exponent: Complex): Complex {
  const isZero = base[0] === 0 && base[1] === 0;
  if (isZero) return exponent[0] > 0 ? [0, 0] : exponent[0] === 0 ? [1, 0] : UNDEFINED;
  const isReal = base[1] === 0 && exponent[1] === 0 && (base[0] > 0 || Number.isInteger(exponent[0]));
  const value: Complex = isReal ? [base[0] ** exponent[0], 0] : exp(multiply(exponent, ln(base)));
  return size(value) < 1e-300 ? UNDEFINED : value; // too small to distinguish from 0
}

/** The real root of a negative number where the degree is odd, else the principal one. */
function root(value: Complex, [degree]: Complex): Complex {
  const isOdd = Number.isInteger(degree) && degree % 2 !== 0;
  if (value[1] === 0 && value[0] < 0 && isOdd) return negate(root(negate(value), [degree, 0]));
  if (degree === 2 && value[1] === 0) return value[0] < 0 ? [0, Math.sqrt(-value[0])] : [Math.sqrt(value[0]), 0];
  return power(value, [1 / degree, 0]);
}

const onReal = (rule: (x: number) => number) => {
  return ([re, im]: Complex): Complex => (im === 0 ? [rule(re), 0] : UNDEFINED);
};
const sin = ([re, im]: Complex): Complex => [Math.sin(re) * Math.cosh(im), Math.cos(re) * Math.sinh(im)];
const cos = ([re, im]: Complex): Complex => [Math.cos(re) * Math.cosh(im), -Math.sin(re) * Math.sinh(im)];
const factorial = onReal((n) => {
  if (!Number.isInteger(n) || n < 0 || n > 170) return Number.NaN;
  let value = 1;
  for (let k = 2; k <= n; k++) value *= k;
  return value;
});

function binomial([n]: Complex, [k]: Complex): Complex {
  if (!Number.isInteger(n) || !Number.isInteger(k) || k < 0 || n < k || n > 1000) return UNDEFINED;
  let value = 1;
  for (let i = 1; i <= Math.min(k, n - k); i++) value = Math.round((value * (n - Math.min(k, n - k) + i)) / i);
  return [value, 0];
}

const rules: Readonly<Record<Operation, (a: Complex, b: Complex) => Complex>> = {
  add,
  negate,
  multiply,
  divide,
  power,
  root,
  factorial,
  binom: binomial,
  exp,
  ln,
  log: (value, base) => divide(ln(value), ln(base)),
  abs: (value) => [size(value), 0],
  floor: onReal(Math.floor),
  ceil: onReal(Math.ceil),
  sin,
  cos,
  tan: (value) => divide(sin(value), cos(value)),
  cot: (value) => divide(cos(value), sin(value)),
  sec: (value) => divide([1, 0], cos(value)),
  csc: (value) => divide([1, 0], sin(value)),
  arcsin: onReal(Math.asin),
  arccos: onReal(Math.acos),
  arctan: onReal(Math.atan),
  sinh: onReal(Math.sinh),
  cosh: onReal(Math.cosh),
  tanh: onReal(Math.tanh),
};

/** Numbers with more bits are not computed exactly. */
const MOST_BITS = 20_000;

/** The exact value of a formula of rational numbers; null for any other. */
function exactValue(expression: Expression): Rational | null {
  if (expression.kind === "number") return expression;
  if (expression.kind === "symbol") return null;
  const values: Rational[] = [];
  for (const operand of expression.operands) {
    const value = exactValue(operand);
    if (value === null || bits(value) > MOST_BITS) return null;
    values.push(value);
  }
  const [a, b = a] = values;
  return a === undefined || b === undefined ? null : exactResult(expression.operation, a, b);
}

const rational = (numerator: bigint, denominator: bigint): Rational | null =>
  denominator === 0n ? null : { numerator, denominator };
const bits = ({ numerator, denominator }: Rational): number =>
  4 * (numerator.toString(16).length + denominator.toString(16).length);

function exactResult(operation: Operation, a: Rational, b: Rational): Rational | null {
  const [n, d, m, e] = [a.numerator, a.denominator, b.numerator, b.denominator];
  if (operation === "add") return rational(n * e + m * d, d * e);
  if (operation === "negate") return rational(-n, d);
  if (operation === "multiply") return rational(n * m, d * e);
  if (operation === "divide") return rational(n * e, d * m);
  if (operation !== "power" || m % e !== 0n) return null;
  const exponent = m / e;
  const times = exponent < 0n ? -exponent : exponent;
  if (times > 1000n || bits(a) * Number(times) > MOST_BITS) return null;
  return exponent < 0n ? rational(d ** times, n ** times) : rational(n ** times, d ** times);
}
