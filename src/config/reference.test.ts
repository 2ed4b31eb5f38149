import { readFileSync } from "node:fs";
import { describe, expect, test } from "vitest";
import { loadSchemas } from "../cli/verbs.ts";
import { mandatory } from "../util/field.ts";
import { defineConfig, defineEval, defineGenerate, defineRewardModel, defineSft } from "./define-config.ts";
import { hasInterpolation } from "./interpolate.ts";
import { configReference } from "./reference.ts";
import { allKeys, fieldsOf, find } from "./schema.ts";
import type { SftConfig } from "./sft/schema.ts";

const schemas = await loadSchemas();

test("docs/config.md is what the schemas say (run `node scripts/docs.ts`)", () => {
  const page = readFileSync(new URL("../../docs/config.md", import.meta.url), "utf8");
  expect(page).toBe(configReference(schemas));
});

describe.each(schemas.map((schema) => [schema.verb, schema] as const))("the keys of %s", (_, schema) => {
  test("every default is a value of its own type", () => {
    for (const [key, { type, default: value }] of fieldsOf(schema.fields)) {
      if (value !== mandatory && !hasInterpolation(value)) expect(type.schema.safeParse(value).success, key).toBe(true);
    }
  });

  test("every field says in one sentence what it means", () => {
    for (const [key, { doc }] of fieldsOf(schema.fields)) expect(doc, key).toMatch(/^[A-Z].*\.$/);
  });

  test("no key is in two tables, and every other spelling leads somewhere", () => {
    const keys = allKeys(schema);
    expect(new Set(keys).size).toBe(keys.length);
    for (const key of Object.values(schema.aliases)) expect(find(schema, key).kind, key).not.toBe("unknown");
  });
});

test("a config file is checked by the compiler and the resolved config is typed", () => {
  const config = defineSft({
    model: { path: "m" },
    optim: { lr: 1e-5 },
    trainer: { save_freq: "after_each_epoch" },
  });
  // Every verb has a function of its own.
  defineConfig({ actor_rollout_ref: { rollout: { n: 8 } }, custom_reward_function: ({ response }) => response.length });
  defineRewardModel({ data: { chosen_key: "better", rejected_key: "worse" } });
  defineGenerate({ data: { output_path: "answers.jsonl" }, rollout: { temperature: 0 } });
  defineEval({ eval: { pass_score: 0.5 } });
  // @ts-expect-error: a misspelt key does not compile
  defineConfig({ data: { train_batchsize: 1 } });
  // @ts-expect-error: neither does a wrong type
  defineConfig({ data: { train_batch_size: "many" } });
  const lr: number | undefined = [1].map((): SftConfig["optim"]["lr"] => 1)[0];
  expect([config, lr]).toMatchObject([{ model: { path: "m" } }, 1]);
});
