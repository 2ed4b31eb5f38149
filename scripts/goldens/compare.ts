/**
 * What a golden case is, and how computed outputs are held against it: numbers within the tolerance of the goldens'
 * README, everything else exactly. A miss is one line: where, what was expected, what came. An error of ours is a refusal,
 * except a TypeError or a RangeError, which nobody throws on purpose.
 */
import { z } from "zod";
import { messageOf } from "../../src/util/errors.ts";

export const GoldenCase = z.object({
  name: z.string(),
  function: z.string().optional(),
  version: z.string().optional(),
  f32_noise: z.number().nullish(),
  inputs: z.unknown(),
  outputs: z.unknown(),
});
export type GoldenCase = z.infer<typeof GoldenCase>;

/**
 * Misses of one case: those of what `compute` gives, or that it does not refuse what it should. `slack` is how far a place
 * may be off besides, where verl subtracts nearly equal numbers.
 */
export async function check(
  golden: GoldenCase,
  compute: () => unknown,
  slack: (path: string) => number = () => 0,
): Promise<string[]> {
  const isRefusal = z.object({ error: z.string() }).safeParse(golden.outputs);
  let found: unknown;
  try {
    found = await compute();
  } catch (error) {
    if (error instanceof TypeError || error instanceof RangeError)
      return [`${golden.name}: broke off with: ${error.message}`];
    return isRefusal.success ? [] : [`${golden.name}: refused with: ${messageOf(error)}`];
  }
  if (isRefusal.success) return [`${golden.name}: accepted, where verl raises ${isRefusal.data.error}`];
  return differences(golden.outputs, found, { path: "outputs", isNear: nearness(golden.f32_noise ?? 0, slack) }).map(
    (difference) => `${golden.name}: ${difference}`,
  );
}

/** A slope at a kink, where any number between those of the two sides is right. */
const Between = z.object({ between: z.tuple([z.number(), z.number()]) });

type Nearness = (found: number, expected: number, path: string) => boolean;
type Where = { readonly path: string; readonly isNear: Nearness };

/** |a - b| <= 1e-5 + 1e-4 |b|, or ten times the noise of single precision where that was measured to be large. */
function nearness(noise: number, slack: (path: string) => number): Nearness {
  const [absolute, relative] = noise > 1e-5 ? [10 * noise, 10 * noise] : [1e-5, 1e-4];
  return (found, expected, path) =>
    Math.abs(found - expected) <= Math.max(absolute, slack(path)) + relative * Math.abs(expected);
}

/** Every leaf of `expected` that `found` lacks or has otherwise; what else `found` has does not matter. */
function differences(expected: unknown, found: unknown, { path, isNear }: Where): string[] {
  if (typeof expected === "number" && typeof found === "number") {
    return isNear(found, expected, path) ? [] : [`${path} is ${found}, expected ${expected}`];
  }
  const between = Between.safeParse(expected);
  if (between.success && typeof found === "number") {
    const nearest = Math.min(Math.max(found, between.data.between[0]), between.data.between[1]);
    return isNear(found, nearest, path) ? [] : [`${path} is ${found}, expected one of ${show(expected)}`];
  }
  if (Array.isArray(expected)) {
    const list: unknown[] | null = isList(found) ? Array.from(found) : null;
    if (list?.length !== expected.length) return [`${path} is ${show(found)}, expected ${show(expected)}`];
    return expected.flatMap((item, i) => differences(item, list[i], { path: `${path}[${i}]`, isNear }));
  }
  if (isRecord(expected) && isRecord(found)) {
    return Object.entries(expected).flatMap(([key, item]) =>
      differences(item, found[key], { path: `${path}.${key}`, isNear }),
    );
  }
  // Where verl gives NaN or infinity (a mean over nothing, for instance), ours is finite or leaves the value out.
  if (expected === "not finite" && (found == null || Number.isFinite(found))) return [];
  return expected === found ? [] : [`${path} is ${show(found)}, expected ${show(expected)}`];
}

function isList(value: unknown): value is ArrayLike<unknown> {
  return Array.isArray(value) || (ArrayBuffer.isView(value) && !(value instanceof DataView));
}

function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !isList(value);
}

function show(value: unknown): string {
  const text = JSON.stringify(isList(value) ? Array.from(value) : value) ?? "nothing";
  return text.length <= 200 ? text : `${text.slice(0, 200)} …`;
}
