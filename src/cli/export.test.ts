/** `trainyard export` on checkpoints of real runs: what is written, and what is refused. */
import { spawnSync } from "node:child_process";
import { mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { cp } from "node:fs/promises";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { Yard } from "../../test/rl-yard.ts";
import { checksums } from "../../test/sandbox.ts";
import { readConfig } from "../models/config.ts";
import { readAll, writeSafetensors } from "../models/safetensors.ts";

const launcher = fileURLToPath(new URL("../../bin/trainyard.js", import.meta.url));

let yard: Yard;
beforeAll(async () => {
  yard = await Yard.make();
  await yard.play("run", ["algorithm.adv_estimator=gae", "trainer.save_freq=1", "trainer.max_actor_ckpt_to_keep=2"]);
});
afterAll(() => yard.remove());

function exportModel(...args: readonly string[]) {
  const options = { encoding: "utf8", cwd: yard.root } as const;
  const { status, stdout, stderr } = spawnSync(process.execPath, [launcher, "export", ...args], options);
  return { code: status, stdout, stderr };
}

const tensorsOf = async (folder: string) => {
  const tensors = await readAll(yard.path(folder, "model.safetensors"));
  return new Map([...tensors].map(([name, { data }]) => [name, [...data].map(Number)]));
};

describe("what is written", () => {
  test.each([
    ["a run is its latest checkpoint", "run", "run/global_step_2/actor"],
    ["a checkpoint is its actor", "run/global_step_1", "run/global_step_1/actor"],
    ["a folder with a slash behind it is the same", "run/global_step_1/", "run/global_step_1/actor"],
    ["a model is itself", "run/global_step_2/critic", "run/global_step_2/critic"],
  ])("%s: the same weights, config and tokenizer, and no optimizer", async (name, from, source) => {
    const to = name.replaceAll(/\W+/g, "-");
    const { code, stdout, stderr } = exportModel(from, "--to", to);
    expect({ code, stderr }).toEqual({ code: 0, stderr: "" });
    expect(stdout).toMatch(/parameters as F32, [\d.]+ KB, read back and compared/);
    expect(readdirSync(yard.path(to)).sort()).toEqual([
      "config.json",
      "model.safetensors",
      "tokenizer.json",
      "tokenizer_config.json",
    ]);
    expect(await checksums(yard.path(to))).toEqual(
      Object.fromEntries(
        Object.entries(await checksums(yard.path(source))).filter(([path]) => !path.startsWith("optimizer")),
      ),
    );
  });

  test("bf16 halves the weights and rounds them to the nearest", async () => {
    expect(exportModel("run", "--to", "half", "--dtype", "bf16").stdout).toMatch(/parameters as BF16/);
    const [whole, half] = [await tensorsOf("run/global_step_2/actor"), await tensorsOf("half")];
    expect([...half.keys()].sort()).toEqual([...whole.keys()].sort());
    for (const [name, values] of whole) {
      const rounded = half.get(name) ?? [];
      values.forEach((value, i) => {
        expect(Math.abs((rounded[i] ?? Number.NaN) - value)).toBeLessThanOrEqual(Math.abs(value) * 2 ** -8);
      });
    }
    expect((await readConfig(yard.path("half"))).raw.dtype).toBe("bfloat16");
  });

  test("--role chooses the model, and the command that is shown fits it", () => {
    expect(exportModel("run", "--to", "language").stdout).toMatch(/AutoModelForCausalLM.*\n.*vllm serve language\n/);
    const { stdout } = exportModel("run", "--role", "critic", "--to", "critic");
    expect(stdout).toMatch(/^run.global_step_2.critic is exported to critic: .*\n\n.*AutoModelForTokenClassification/);
    expect(stdout).not.toMatch(/vllm/);
  });
});

describe("a folder that exists", () => {
  test("stays as it is, unless --force replaces the model in it", async () => {
    expect(exportModel("run/global_step_1", "--to", "old").code).toBe(0);
    const before = await checksums(yard.path("old"));
    const refused = exportModel("run/global_step_2", "--to", "old");
    expect(refused).toEqual({
      code: 2,
      stdout: "",
      stderr: expect.stringMatching(/^old exists already\. .*--force/),
    });
    expect(await checksums(yard.path("old"))).toEqual(before);
    expect(exportModel("run/global_step_2", "--to", "old", "--force").code).toBe(0);
    expect(await tensorsOf("old")).toEqual(await tensorsOf("run/global_step_2/actor"));
  });

  test("may be empty", () => {
    mkdirSync(yard.path("empty"));
    expect(exportModel("run", "--to", "empty").code).toBe(0);
  });

  test("is not replaced by --force where it holds more than a model", async () => {
    mkdirSync(yard.path("mine"));
    writeFileSync(yard.path("mine", "notes.txt"), "mine");
    await cp(yard.path("run/global_step_1"), yard.path("copy"), { recursive: true });
    for (const to of ["mine", "copy", join("copy", "actor")]) {
      const before = await checksums(yard.path(to));
      expect(exportModel("run", "--to", to, "--force").stderr).toMatch(/holds more than a model \(.*--force does not/);
      expect(await checksums(yard.path(to))).toEqual(before);
    }
  });
});

test("an export that is interrupted leaves no file", async () => {
  const broken = yard.path("broken");
  await cp(yard.path("run/global_step_2/actor"), broken, { recursive: true });
  const tensors = [...(await readAll(join(broken, "model.safetensors")))].map(([name, { shape, data }], i) => {
    const values = Float32Array.from(data, Number);
    if (i === 3) values[1] = Number.NaN;
    return { name, shape, data: () => values };
  });
  await writeSafetensors(join(broken, "model.safetensors"), tensors, { dtype: "F32" });
  const before = readdirSync(yard.root).sort();
  const { code, stderr } = exportModel("broken", "--to", "never");
  expect(stderr).toMatch(/^broken: 1 of the \d+ numbers of "\S+" are not finite.* Export an earlier checkpoint/);
  expect(code).toBe(2);
  expect(readdirSync(yard.root).sort()).toEqual(before);
});

test.each([
  [[], /^There is nothing to export\. .*trainyard export RUN --to DIR/],
  [["run"], /^The folder to export run to is missing\. Add --to DIR/],
  [["run", "other", "--to", "x"], /^Both run and other are to be exported/],
  [["nowhere", "--to", "x"], /^There is no folder nowhere/],
  [["train.jsonl", "--to", "x"], /^train\.jsonl is a file/],
  [[".", "--to", "x"], /^\. holds neither a checkpoint .* nor a model/],
  [["run", "--to", "x", "--role", "actro"], /^`--role` is "actro", which does not exist\. Did you mean "actor"/],
  [["run", "--to", "x", "--role", "reward"], /global_step_2 has no reward\. It holds: actor, critic\./],
  [["model", "--to", "x", "--role", "actor"], /^model is a model, which has no roles/],
  [["run", "--to", "x", "--dtype", "f16"], /^`--dtype` is "f16"; it should be one of f32, bf16/],
  [["run", "--to", "run/global_step_2/actor/x"], /one lies in the other/],
  [["run", "--to", "run", "--force"], /one lies in the other/],
  [["run", "--too", "x"], /^`--too` is no option\. Did you mean --to\?/],
])("%j is one message and exit code 2", (args, message) => {
  const { code, stdout, stderr } = exportModel(...args);
  expect(stderr).toMatch(message);
  expect(stderr.trimEnd().split("\n")).toHaveLength(1);
  expect({ code, stdout }).toEqual({ code: 2, stdout: "" });
});

const python = process.env.TRAINYARD_TEST_PYTHON;

test.skipIf(!python)(
  "transformers loads what was exported (needs Python with transformers)",
  () => {
    expect(exportModel("run", "--to", "for-transformers").code).toBe(0);
    const program = `import sys
from transformers import AutoModelForCausalLM
model, info = AutoModelForCausalLM.from_pretrained(sys.argv[1], output_loading_info=True)
print(sum(p.numel() for p in model.parameters()), [len(info[k]) for k in ("missing_keys", "unexpected_keys")])`;
    const { stdout } = spawnSync(python ?? "", ["-c", program, yard.path("for-transformers")], { encoding: "utf8" });
    const index = readFileSync(yard.path("for-transformers", "model.safetensors"));
    const header: Record<string, { shape?: number[] }> = JSON.parse(
      index.subarray(8, 8 + Number(index.readBigUInt64LE())).toString(),
    );
    const count = Object.values(header).reduce((sum, { shape }) => sum + (shape?.reduce((a, b) => a * b, 1) ?? 0), 0);
    expect(stdout.trim()).toBe(`${count} [0, 0]`);
  },
  120_000,
);
