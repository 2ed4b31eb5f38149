/** verl's `model.override_config` and `model.hf_config_path`: a run with another config.json than the model's folder has. */
import { mkdir, readFile, writeFile } from "node:fs/promises";
import { afterAll, beforeAll, expect, test } from "vitest";
import { charConfig, Yard } from "./rl-yard.ts";

let yard: Yard;
beforeAll(async () => {
  yard = await Yard.make();
  await writeFile(yard.path("reward.mjs"), "export default ({ response }) => response.length;\n");
});
afterAll(() => yard.remove());

const model = "actor_rollout_ref.model";
const long = ["data.max_prompt_length=8", "data.max_response_length=72", "trainer.total_training_steps=1"];
const ppo = (run: string, ...keys: readonly string[]) =>
  yard.command(...yard.args(run, [`custom_reward_function.path=${yard.path("reward.mjs")}`, ...long, ...keys]));
const savedConfig = async (run: string, role = "actor") =>
  JSON.parse(await readFile(yard.path(run, "global_step_1", role, "config.json"), "utf8"));

test("a field that is set gives the run of a model whose folder has it, and is saved; the folder stays as it is", async () => {
  const fields = { rope_theta: 2, max_position_embeddings: 128 };
  const changed = await yard.makeModel("changed", { ...charConfig, ...fields });
  const keys = Object.entries(fields).map(([name, value]) => `+${model}.override_config.${name}=${value}`);
  expect(await ppo("plain")).toMatchObject({ code: 0 });
  expect(await ppo("folder", `${model}.path=${changed}`)).toMatchObject({ code: 0 });
  const { code, said } = await ppo("key", ...keys);
  expect(code, said).toBe(0);
  expect(said).not.toMatch(/override_config/);
  expect(await yard.metrics("key")).toEqual(await yard.metrics("folder"));
  expect(await yard.metrics("key")).not.toEqual(await yard.metrics("plain"));
  expect(await savedConfig("key")).toEqual(await savedConfig("folder"));
  expect(JSON.parse(await readFile(`${yard.model}/config.json`, "utf8"))).toMatchObject({
    max_position_embeddings: 64,
  });
});

test("a dict is merged, also below model_config, for the critic too", async () => {
  const keys = [
    "algorithm.adv_estimator=gae",
    `${model}.override_config={max_position_embeddings: 128, rope_scaling: {rope_type: linear, factor: 2.0}}`,
    "critic.model.override_config.model_config.max_position_embeddings=256",
  ];
  const { code, said } = await ppo("merged", ...keys);
  expect(code, said).toBe(0);
  expect(await savedConfig("merged")).toMatchObject({ rope_scaling: { rope_type: "linear", factor: 2 } });
  expect(await savedConfig("merged", "critic")).toMatchObject({ max_position_embeddings: 256 });
});

test("hf_config_path is the folder whose config.json counts; another one later is refused", async () => {
  await mkdir(yard.path("config"));
  await writeFile(yard.path("config", "config.json"), JSON.stringify({ ...charConfig, max_position_embeddings: 96 }));
  expect(await ppo("elsewhere", `${model}.hf_config_path=${yard.path("config")}`)).toMatchObject({ code: 0 });
  expect(await savedConfig("elsewhere")).toMatchObject({ max_position_embeddings: 96 });
  const keys = [`${model}.override_config.max_position_embeddings=128`, "trainer.total_training_steps=2"];
  expect((await ppo("elsewhere", ...keys)).said).toMatch(/was made with another actor: .* has another config\.json\./);
});

test("dropout has no effect and is named; what does not fit the weights is refused", async () => {
  const far = `${model}.override_config.max_position_embeddings=128`;
  const dropout = await ppo("dropout", far, `${model}.override_config.attention_dropout=0.1`);
  expect(dropout.said).toMatch(/override_config\.attention_dropout=0\.1: there is no dropout/);
  expect(dropout.code).toBe(0);
  const wide = await ppo("wide", far, `${model}.override_config.hidden_size=32`);
  expect(wide).toMatchObject({ code: 2, said: expect.stringMatching(/model\.embed_tokens\.weight/) });
  const nodes = await ppo("nodes", far, "trainer.engine=ray", "trainer.nnodes=2");
  expect(nodes).toMatchObject({ code: 2, said: expect.stringMatching(/`trainer\.nnodes` is 2\. Change the file in/) });
});
