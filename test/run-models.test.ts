/**
 * A run folder belongs to the models it began with: `trainyard ppo`, `sft` and `reward` refuse another one, and take the same
 * one from another place.
 */
import { cp, readFile, rename, writeFile } from "node:fs/promises";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { createModel } from "../src/models/create.ts";
import { charConfig, Yard } from "./rl-yard.ts";
import { Sandbox, tinyConfig } from "./sandbox.ts";

const disable = /Give the same model, or start over with `trainer\.resume_mode=disable`\./;

/** Forget which models a checkpoint was made with, as checkpoints of earlier versions do. */
async function forget(checkpoint: string): Promise<void> {
  const path = `${checkpoint}/state.json`;
  const { models, ...state } = JSON.parse(await readFile(path, "utf8"));
  expect(Object.keys(models)).not.toHaveLength(0);
  await writeFile(path, JSON.stringify(state));
}

describe("ppo", () => {
  const score = { architectures: ["LlamaForSequenceClassification"], num_labels: 1 };
  const longer = "trainer.total_training_steps=3";
  let yard: Yard;
  let keys: string[];
  const ppo = (run: string, ...overrides: readonly string[]) =>
    yard.command(...yard.args(run, [...keys, ...overrides]));

  beforeAll(async () => {
    yard = await Yard.make();
    keys = [
      "algorithm.adv_estimator=gae",
      "algorithm.use_kl_in_reward=true",
      "reward_model.enable=true",
      `reward_model.model.path=${await yard.makeModel("scorer", { ...charConfig, ...score }, 5)}`,
      `critic.model.path=${await yard.makeModel("critic", charConfig, 6)}`,
    ];
    expect(await ppo("run")).toMatchObject({ code: 0 });
    await cp(yard.path("run"), yard.path("older"), { recursive: true });
  });
  afterAll(() => yard.remove());

  test.each([
    ["actor", "actor_rollout_ref.model.path", charConfig, "other weights"],
    ["critic", "critic.model.path", charConfig, "other weights"],
    ["reward model", "reward_model.model.path", { ...charConfig, ...score }, "other weights"],
    [
      "actor",
      "actor_rollout_ref.model.path",
      { ...charConfig, rope_theta: 500 },
      "another config.json and other weights",
    ],
  ])("another %s is refused, with both named (%s)", async (role, key, config, differs) => {
    const other = await yard.makeModel("other", config, 9);
    const before = await yard.outcome("run");
    const { code, said } = await ppo("run", longer, `${key}=${other}`);
    expect(said).toContain(`${yard.path("run", "global_step_2")} was made with another ${role}: the run began with`);
    expect(said).toContain(`and ${other} has ${differs}. `);
    expect(said).toMatch(disable);
    expect(code).toBe(2);
    expect(await yard.outcome("run")).toEqual(before);
  });

  test("another tokenizer is refused", async () => {
    const other = yard.path("tokenizer");
    await cp(yard.model, other, { recursive: true });
    await writeFile(`${other}/chat_template.jinja`, "{{ messages[0].content }}");
    const { code, said } = await ppo("run", longer, `actor_rollout_ref.model.tokenizer_path=${other}`);
    expect(said).toContain(`the run began with ${yard.model}, which has another tokenizer now.`);
    expect(code).toBe(2);
  });

  test("a checkpoint from before resumes with a note, and the next one knows its models", async () => {
    await forget(yard.path("older", "global_step_2"));
    const { code, said } = await ppo("older", longer);
    expect(said).toMatch(/global_step_2 does not say which models it was made with, so they are not checked\./);
    expect(code).toBe(0);
    const state = JSON.parse(await readFile(yard.path("older", "global_step_3", "state.json"), "utf8"));
    expect(Object.keys(state.models)).toEqual(["actor", "reference", "critic", "reward model"]);
    expect(state.models.actor).toMatchObject({ folder: yard.model });
  });

  test("a folder that was moved is the same model", async () => {
    await rename(yard.model, yard.path("moved"));
    const { code, said } = await ppo("run", longer, `actor_rollout_ref.model.path=${yard.path("moved")}`);
    expect(said).toContain("Resuming from");
    expect(said).not.toMatch(/another|not checked/);
    expect(code).toBe(0);
  });
});

describe.each([
  ["sft", "actor", {}],
  ["reward", "reward", { chosen: "Yes.", rejected: "No." }],
])("%s", (verb, role, row) => {
  let box: Sandbox;
  const run = (...overrides: readonly string[]) => box.command(verb, ...box.args("run", overrides).slice(1));

  beforeAll(async () => {
    box = await Sandbox.make();
    const rows = Array.from({ length: 16 }, (_, i) => ({ prompt: `${i}?`, question: `${i}?`, answer: "Yes.", ...row }));
    await box.writeLines("train.jsonl", rows);
    await box.writeLines("val.jsonl", rows.slice(0, 2));
    expect(await run("data.prompt_key=question", "trainer.total_training_steps=1")).toMatchObject({ code: 0 });
  });
  afterAll(() => box.remove());

  test("refuses another model, and a folder whose weights have changed", async () => {
    const other = await box.copyModel("other");
    await createModel(other, tinyConfig, 2);
    const { code, said } = await run("trainer.total_training_steps=2", `model.path=${other}`);
    expect(said).toContain(
      `was made with another model: the run began with ${box.model}, and ${other} has other weights. `,
    );
    expect(said).toMatch(disable);
    expect(code).toBe(2);

    const weights = `${box.model}/model.safetensors`;
    const held = await readFile(weights);
    await cp(`${other}/model.safetensors`, weights);
    const changed = await run("trainer.total_training_steps=2");
    expect(changed.said).toContain(`the run began with ${box.model}, which has other weights now. `);
    await writeFile(weights, held);
  });

  test("goes on with a note from a checkpoint from before, and with a model that was moved", async () => {
    await forget(box.path("run", "global_step_1"));
    const older = await run("trainer.total_training_steps=2");
    expect(older.said).toMatch(/global_step_1 does not say which models/);
    expect(older.code).toBe(0);
    await rename(box.model, box.path("moved"));
    const moved = await run("trainer.total_training_steps=3", `model.path=${box.path("moved")}`);
    expect(moved).toMatchObject({ code: 0, said: expect.stringContaining("Resuming from") });
    await expect(readFile(box.path("run", "global_step_3", role, "config.json"))).resolves.toBeDefined();
  });
});
