/**
 * Golden cases of topic `torch_functional` that are about padding, truncation, positions and response masks.
 */
import { z } from "zod";
import { truncate } from "../../src/data/truncate.ts";
import { padRows, positionIds, responseMask } from "./padding.ts";

export type GoldenCase = { readonly name: string; readonly inputs: unknown; readonly outputs: unknown };

const Rows = z.array(z.array(z.number()));
const PostprocessInputs = z.object({
  input_ids: Rows,
  max_length: z.number(),
  pad_token_id: z.number(),
  left_pad: z.boolean(),
  truncation: z.enum(["error", "left", "right", "middle"]),
});

const checks: readonly (readonly [prefix: string, compute: (inputs: unknown) => Record<string, unknown>])[] = [
  ["postprocess/", postprocess],
  [
    "position_ids",
    (inputs) => {
      const { attention_mask } = z.object({ attention_mask: Rows }).parse(inputs);
      return { position_ids: attention_mask.map((mask) => [...positionIds(mask)]) };
    },
  ],
  [
    "pad_2d_list",
    (inputs) => {
      const Inputs = z.object({ response: Rows, pad_token_id: z.number(), max_length: z.number().nullish() });
      const { response, pad_token_id: padId, max_length } = Inputs.parse(inputs);
      const { ids, time } = padRows(response, { padId, length: max_length ?? 0 });
      return { tensor: unflat(ids, time) };
    },
  ],
  [
    "response_mask/",
    (inputs) => {
      const Inputs = z.object({ response_id: Rows, eos_token: z.union([z.number(), z.array(z.number())]) });
      const { response_id, eos_token } = Inputs.parse(inputs);
      return { mask: response_id.map((ids) => [...responseMask(ids, [eos_token].flat())]) };
    },
  ],
];

/** Whether a case of torch_functional.json is checked here. */
export function isPostprocessCase(name: string): boolean {
  return checks.some(([prefix]) => name.startsWith(prefix));
}

/** What differs from the golden outputs; empty when nothing does. */
export function checkPostprocess(golden: GoldenCase): string[] {
  const compute = checks.find(([prefix]) => golden.name.startsWith(prefix))?.[1];
  if (compute === undefined) return [`${golden.name}: no check for this case`];
  return compare(golden, () => compute(golden.inputs));
}

/** Compare computed outputs with golden ones, exactly; `outputs.error` means that the inputs must be refused. */
export function compare(golden: GoldenCase, compute: () => Record<string, unknown>): string[] {
  const expected = z.record(z.string(), z.unknown()).parse(golden.outputs);
  let found: Record<string, unknown>;
  try {
    found = compute();
  } catch (error) {
    return "error" in expected ? [] : [`${golden.name}: refused with ${String(error)}`];
  }
  if ("error" in expected) return [`${golden.name}: was accepted, and verl raises ${String(expected.error)}`];
  return Object.entries(expected).flatMap(([key, value]) => {
    const [want, got] = [canonical(value), canonical(found[key])];
    return want === got ? [] : [`${golden.name}: ${key} is ${got}, expected ${want}`];
  });
}

function postprocess(inputs: unknown): Record<string, unknown> {
  const { input_ids, max_length, pad_token_id: padId, left_pad, truncation } = PostprocessInputs.parse(inputs);
  const kept = input_ids.map((ids) => truncate(Int32Array.from(ids), max_length, truncation));
  const { ids, attentionMask, time } = padRows(kept, { padId, length: max_length, side: left_pad ? "left" : "right" });
  return { input_ids: unflat(ids, time), attention_mask: unflat(attentionMask, time) };
}

function unflat(values: Int32Array | Uint8Array, time: number): number[][] {
  return Array.from({ length: values.length / time }, (_, i) => [...values.subarray(i * time, (i + 1) * time)]);
}

/** JSON with sorted keys, so that equal values are equal texts. */
function canonical(value: unknown): string {
  return (
    JSON.stringify(value, (_key, item: unknown) =>
      typeof item === "object" && item !== null && !Array.isArray(item)
        ? Object.fromEntries(Object.entries(item).sort(([a], [b]) => (a < b ? -1 : 1)))
        : item,
    ) ?? "nothing"
  );
}
