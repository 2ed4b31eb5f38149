/**
 * What a golden case is, and how computed outputs are held against it: numbers within the tolerance of the goldens'
 * README, everything else exactly. A miss is one line: where, what was expected, what came.
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
 * Misses of one case: those of what `compute` gives, or that it does not refuse what it should. Places where
 * `isLoose` may be off by 2e-4: there verl subtracts nearly equal single-precision numbers.
 */
export async function check(
  golden: GoldenCase,
  compute: () => unknown,
  isLoose: (path: string) => boolean = () => false,
): Promise<string[]> {
  const isRefusal = z.object({ error: z.string() }).safeParse(golden.outputs);
  let found: unknown;
  try {
    found = await compute();
  } catch (error) {
    return isRefusal.success ? [] : [`${golden.name}: refused with: ${messageOf(error)}`];
  }
  if (isRefusal.success) return [`${golden.name}: accepted, where verl raises ${isRefusal.data.error}`];
  return differences(golden.outputs, found, { path: "outputs", isNear: nearness(golden.f32_noise ?? 0, isLoose) }).map(
    (difference) => `${golden.name}: ${difference}`,
  );
}

type Nearness = (found: number, expected: number, path: string) => boolean;
type Where = { readonly path: string; readonly isNear: Nearness };

/** |a - b| <= 1e-5 + 1e-4 |b|, or ten times the noise of single precision where that was measured to be large. */
function nearness(noise: number, isLoose: (path: string) => boolean): Nearness {
  const [absolute, relative] = noise > 1e-5 ? [10 * noise, 10 * noise] : [1e-5, 1e-4];
  return (found, expected, path) =>
    Math.abs(found - expected) <= (isLoose(path) ? Math.max(absolute, 2e-4) : absolute) + relative * Math.abs(expected);
}

/** Every leaf of `expected` that `found` lacks or has otherwise; what else `found` has does not matter. */
function differences(expected: unknown, found: unknown, { path, isNear }: Where): string[] {
  if (typeof expected === "number" && typeof found === "number") {
    return isNear(found, expected, path) ? [] : [`${path} is ${found}, expected ${expected}`];
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
