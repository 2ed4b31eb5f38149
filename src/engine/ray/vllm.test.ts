import { expect, test } from "vitest";
import type { ServerSpec } from "../contract.ts";
import { commandOptions } from "./vllm.ts";

const spec: ServerSpec = {
  dtype: "float32",
  maxLength: 640,
  maxSequences: 256,
  maxBatchedTokens: 512,
  hasPrefixCache: false,
  memoryShare: 0.4,
  own: null,
  parallel: 2,
  isEager: false,
  options: {},
};

/** The value of an option. */
const after = (command: readonly string[], option: string) => command[command.indexOf(option) + 1];

test("vLLM gets the dtype and limits of the run, processed log-probs, and no generation defaults of the model", () => {
  const command = commandOptions(spec, "cuda");
  const values = ["--dtype", "--max-model-len", "--max-num-seqs", "--logprobs-mode", "--generation-config"];
  expect(values.map((option) => after(command, option))).toEqual([
    "float32",
    "640",
    "256",
    "processed_logprobs",
    "vllm",
  ]);
  expect(command).toContain("--no-enable-prefix-caching");
});

test("a pass of vLLM has room for at least one sequence", () => {
  expect(after(commandOptions(spec, "cpu"), "--max-num-batched-tokens")).toBe("640");
  expect(after(commandOptions({ ...spec, maxBatchedTokens: 8192 }, "cpu"), "--max-num-batched-tokens")).toBe("8192");
});

test("GPU options are set on GPUs; on a CPU there are none and nothing is compiled", () => {
  const onGpus = commandOptions(spec, "cuda");
  expect(after(onGpus, "--tensor-parallel-size")).toBe("2");
  expect(after(onGpus, "--gpu-memory-utilization")).toBe("0.4");
  expect(onGpus).toContain("--no-enforce-eager");
  const onCpu = commandOptions(spec, "cpu");
  expect(onCpu).toContain("--enforce-eager");
  expect(onCpu.join(" ")).not.toMatch(/tensor-parallel|gpu-memory/);
});

test("further options replace ours, booleans and objects are written in vLLM's form, and null omits an option", () => {
  const options = { max_num_seqs: 8, disable_log_stats: true, hf_overrides: { a: 1 }, seed: null };
  const command = commandOptions({ ...spec, options }, "cpu");
  expect(command.filter((option) => option === "--max-num-seqs")).toHaveLength(1);
  expect(after(command, "--max-num-seqs")).toBe("8");
  expect(command).toContain("--disable-log-stats");
  expect(after(command, "--hf-overrides")).toBe('{"a":1}');
  expect(command).not.toContain("--seed");
});
