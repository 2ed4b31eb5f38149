/** Sequences of tokens cut to a length, as verl's `postprocess_data` does. */
import { UserError } from "../util/errors.ts";

/** Which end of an overlong sequence goes; `middle` keeps both ends, `error` refuses. */
export type Truncation = "error" | "left" | "right" | "middle";

/** At most `maxLength` values; the ones that go are chosen by `mode`. */
export function truncate(values: Int32Array, maxLength: number, mode: Truncation, what?: string): Int32Array;
export function truncate(values: Uint8Array, maxLength: number, mode: Truncation, what?: string): Uint8Array;
export function truncate(
  values: Int32Array | Uint8Array,
  maxLength: number,
  mode: Truncation,
  what = "A sequence",
): Int32Array | Uint8Array {
  if (values.length <= maxLength) return values;
  const head = keptAtStart(values.length, maxLength, mode, what);
  const kept = values instanceof Int32Array ? new Int32Array(maxLength) : new Uint8Array(maxLength);
  kept.set(values.subarray(0, head));
  kept.set(values.subarray(values.length - (maxLength - head)), head);
  return kept;
}

/** How many of the kept values come from the start; the others come from the end. */
function keptAtStart(length: number, maxLength: number, mode: Truncation, what: string): number {
  switch (mode) {
    case "left":
      return 0;
    case "right":
      return maxLength;
    case "middle":
      return Math.floor(maxLength / 2);
    case "error":
      throw new UserError(
        `${what} has ${length} tokens, and at most ${maxLength} are allowed. Raise the length limit, ` +
          "or set `data.truncation` to `left` or `right` to cut such sequences.",
      );
  }
  return mode satisfies never;
}
