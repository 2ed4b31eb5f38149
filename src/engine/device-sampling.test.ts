import { join } from "node:path";
import { expect, test } from "vitest";
import { readConfig } from "../models/config.ts";
import { devices } from "../runtime/devices.ts";
import { UserError } from "../util/errors.ts";
import { checkSampling } from "./device-sampling.ts";

const fixtures = join(import.meta.dirname, "../../test/fixtures/logits-more");
const configOf = (name: string) => readConfig(join(fixtures, name));

test("a model with capped attention is refused on webgpu and on no other device", async () => {
  const config = await configOf("gemma2_caps");
  expect(() => checkSampling(config, "webgpu")).toThrow(UserError);
  expect(() => checkSampling(config, "webgpu")).toThrow(
    /gemma2 model caps its attention scores at \d+.*trainer\.device=cpu/,
  );
  for (const device of devices.filter((name) => name !== "webgpu")) checkSampling(config, device);
});

test("a model with two sets of rotations is refused on webgpu where sequences may be of both", async () => {
  const config = await configOf("llama_longrope_long");
  const { position } = config.layers[0]!;
  const scaling = position.scaling as { originalPositions: number }; // this fixture has long rope
  const { originalPositions: first } = scaling;
  for (const limit of [undefined, first + 1, config.maxPositions]) {
    expect(() => checkSampling(config, "webgpu", limit)).toThrow(UserError);
    expect(() => checkSampling(config, "webgpu", limit)).toThrow(
      `in sequences of more than ${first} tokens (\`rope_scaling\`), and sequences may have up to ${limit ?? config.maxPositions}`,
    );
    checkSampling(config, "cpu", limit);
  }
  for (const limit of [2, first - 1, first]) checkSampling(config, "webgpu", limit);
});

test.each(["llama_mqa", "qwen3_tied", "llama_dynamic"])("%s is sampled from on every device", async (name) => {
  const config = await configOf(name);
  for (const device of devices) checkSampling(config, device);
});
