import { readFileSync } from "node:fs";
import { describe, expect, test } from "vitest";
import { UserError } from "../../util/errors.ts";
import { mandatory } from "../../util/field.ts";
import { evalSchema } from "../eval/schema.ts";
import { parseOverride } from "../overrides.ts";
import { resolve } from "../resolve.ts";
import { allKeys, fieldsOf, find } from "../schema.ts";
import { formatValue } from "../value.ts";
import { generateSchema } from "./schema.ts";

type Keys = Readonly<Record<string, unknown>>;
const { generation, evaluation }: { generation: Keys; evaluation: Keys } = JSON.parse(
  readFileSync(new URL("../../../test/fixtures/verl-generation-keys.json", import.meta.url), "utf8"),
);

const surroundings = { home: "/home/me", env: {} };
const needed = ["model.path=m", "data.path=in.parquet", "data.output_path=out.parquet"];
const generate = (...overrides: readonly string[]) =>
  resolve(generateSchema, [[...needed, ...overrides].map(parseOverride)], surroundings);
const evaluate = (...overrides: readonly string[]) =>
  resolve(evalSchema, [["data.path=in.parquet", ...overrides].map(parseOverride)], surroundings);

function problem(work: () => unknown): string {
  try {
    work();
  } catch (error) {
    if (error instanceof UserError) return error.message;
    throw error;
  }
  return "";
}

describe("every key of verl's configs is honoured, named or refused with its default accepted", () => {
  test.each([
    ["generation", generation, generateSchema, generate],
    ["evaluation", evaluation, evalSchema, evaluate],
  ] as const)("%s", (_, keys, schema, read) => {
    for (const [key, value] of Object.entries(keys)) {
      expect(["field", "inert", "refused"], key).toContain(find(schema, key).kind);
      expect(
        problem(() => read(`${key}=${formatValue(value)}`)),
        key,
      ).toBe("");
    }
  });

  test("the defaults are verl's, letter for letter, except those that cannot be", () => {
    const ours = new Set(["trainer.device"]);
    for (const [keys, schema] of [
      [generation, generateSchema],
      [evaluation, evalSchema],
    ] as const)
      for (const [key, value] of Object.entries(keys)) {
        const found = find(schema, key);
        if (found.kind !== "field" || ours.has(key) || found.field.default === mandatory) continue;
        expect(found.field.default, key).toEqual(value);
      }
  });

  test("no key is in two tables, and every other spelling leads somewhere", () => {
    for (const schema of [generateSchema, evalSchema]) {
      const keys = allKeys(schema);
      expect(keys.filter((key, i) => keys.indexOf(key) !== i)).toEqual([]);
      for (const key of Object.values(schema.aliases)) expect(find(schema, key).kind, key).toBe("field");
    }
  });

  test("every field says in one sentence what it means, and its default is a value of its type", () => {
    for (const schema of [generateSchema, evalSchema])
      for (const [key, { doc, type, default: value }] of fieldsOf(schema.fields)) {
        expect(doc, key).toMatch(/^[A-Z].*\.$/);
        if (value !== mandatory) expect(type.schema.safeParse(value).success, key).toBe(true);
      }
  });
});

test("a command of main_generation_server gets that program's keys and defaults", () => {
  const { config, notices } = resolve(
    generateSchema,
    [
      [
        "trainer.nnodes=1",
        "trainer.n_gpus_per_node=16",
        "actor_rollout_ref.model.path=~/model",
        "actor_rollout_ref.model.trust_remote_code=True",
        "actor_rollout_ref.rollout.temperature=0.6",
        "actor_rollout_ref.rollout.prompt_length=2048",
        "actor_rollout_ref.rollout.response_length=4096",
        "actor_rollout_ref.rollout.tensor_model_parallel_size=2",
        "actor_rollout_ref.rollout.name=vllm",
        "actor_rollout_ref.rollout.n=4",
        "data.train_files=['a.parquet','b.parquet']",
        "data.prompt_key=prompt",
        "+data.output_path=out.parquet",
      ].map(parseOverride),
    ],
    surroundings,
  );
  expect(config.data).toMatchObject({ path: ["a.parquet", "b.parquet"], n_samples: 4, output_path: "out.parquet" });
  expect(config.model.path).toBe("/home/me/model");
  expect(config.rollout).toMatchObject({ temperature: 0.6, top_k: -1, top_p: 1, prompt_length: 2048 });
  expect(notices[0]).toMatch(/its defaults apply: rollout\.top_k=-1 rollout\.top_p=1 rollout\.max_num_seqs=256$/);
  expect(notices[1]).toMatch(/no effect here:[\s\S]*trust_remote_code=true: no code[\s\S]*name=vllm/);
});

test("keys that mean nothing beside the others are named", () => {
  const url = "rollout.base_url=http://127.0.0.1:1/v1";
  const last = (...overrides: readonly string[]) => generate(...overrides).notices.at(-1);
  expect(last("rollout.endpoint=completions")).toMatch(/^`rollout\.endpoint` has no effect: /);
  expect(last(url, "trainer.threads=2", "rollout.max_num_seqs=4")).toMatch(
    /^`rollout\.max_num_seqs`, `trainer\.threads` have no effect: the server/,
  );
  expect(last(url, "rollout.prompt_length=9")).toMatch(/^`rollout\.prompt_length` has no effect: the server templates/);
  expect(last(url, "rollout.prompt_length=9", "rollout.endpoint=completions")).not.toMatch(/no effect/);
});

describe("a mistake is answered with the key, the value and the way out", () => {
  test.each([
    ["data.output_path=out.csv", /`data\.output_path` is out\.csv\. .* end it in \.parquet or \.jsonl/],
    ["data.path=null", /`data\.path` names no file/],
    ["rollout.temperature=0", /`data\.n_samples` is 5, and `rollout\.temperature` is 0: .*Set data\.n_samples=1/],
    ["rollout.do_sample=false", /`rollout\.do_sample` is false: all responses/],
    ["rollout.n=4", /`rollout\.n` is 4 .* `data\.n_samples` is how many/],
    ["rollout.max_model_len=100", /leaves no room for a response behind a prompt of `rollout\.prompt_length`=1536/],
    ["rollout.top_p=1.5", /`rollout\.top_p` is 1\.5 .* a number above 0 and at most 1/],
    ["rollout.temperture=1", /Nearest: `rollout\.temperature`/],
    ["model.lora_adapter_path=x", /Merge the adapter into the model first/],
    ["rollout.multi_turn.enable=true", /samples one turn per prompt/],
  ])("%s", (override, message) => {
    expect(problem(() => generate(override))).toMatch(message);
  });

  test.each([
    ["data.output_path=out.csv", /`data\.output_path` is out\.csv\. .* end it in \.json/],
    ["data.path=null", /`data\.path` names no file/],
    ["reward.error_budget=2", /`reward\.error_budget` is 2 .* a number from 0 to 1/],
  ])("eval %s", (override, message) => {
    expect(problem(() => evaluate(override))).toMatch(message);
  });
});
