/** What a checkpoint of `trainyard ppo` holds, what a resumed run reads of it, and when it is written. */
import { readdir, readFile, rm, writeFile } from "node:fs/promises";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { main } from "../src/cli/main.ts";
import { Yard } from "./rl-yard.ts";
import { checksums } from "./sandbox.ts";

const actor = "actor_rollout_ref.actor.checkpoint";
const longer = "trainer.total_training_steps=3";

let yard: Yard;
let keys: string[] = [];
beforeAll(async () => {
  yard = await Yard.make();
  await writeFile(yard.path("reward.mjs"), "export default ({ response }) => (response.split('7').length - 1) / 6;\n");
  keys = [
    `custom_reward_function.path=${yard.path("reward.mjs")}`,
    "algorithm.adv_estimator=gae",
    "trainer.save_freq=1",
  ];
  expect(await ppo("whole")).toMatchObject({ code: 0 });
});
afterAll(() => yard.remove());

const ppo = (run: string, ...more: readonly string[]) => yard.command(...yard.args(run, [...keys, ...more]));
const saved = (run: string, ...path: readonly string[]) => readdir(yard.path(run, "global_step_2", ...path));
const last = async (run: string) => checksums(yard.path(run, "global_step_2", "actor"));

describe("save_contents", () => {
  test.each([
    { contents: "[model]", optimizer: false },
    { contents: "[hf_model,extra]", optimizer: false },
    { contents: "[model,optimizer,extra,hf_model]", optimizer: true },
  ])("$contents saves the weights, and the optimizer: $optimizer", async ({ contents, optimizer }) => {
    const run = contents.replaceAll(/\W+/g, "-");
    expect(await ppo(run, `${actor}.save_contents=${contents}`)).toMatchObject({ code: 0 });
    const files = await saved(run, "actor");
    expect([files.includes("model.safetensors"), files.includes("optimizer")]).toEqual([true, optimizer]);
    expect(await saved(run, "critic")).toContain("optimizer"); // it has keys of its own
    expect((await last(run))["model.safetensors"]).toBe((await last("whole"))["model.safetensors"]);
    const { code, said } = await ppo(run, `${actor}.save_contents=${contents}`, longer);
    expect(code).toBe(0);
    const starts =
      /The optimizer state of .*actor is not read .*: the moments of the actor's optimizer start at zero again\./;
    if (optimizer) expect(said).not.toMatch(/start at zero/);
    else expect(said).toMatch(starts);
    expect(said).not.toMatch(/critic's optimizer/);
  });

  test("[optimizer] saves no weights: a resumed run starts from the model, or is refused where it wants them", async () => {
    const only = `${actor}.save_contents=[optimizer]`;
    expect(await ppo("moments", only)).toMatchObject({ code: 0 });
    expect(await saved("moments", "actor")).toEqual(["optimizer"]);
    const refused = await ppo("moments", only, `${actor}.load_contents=[model]`, longer);
    expect(refused.code).toBe(2);
    expect(refused.said).toMatch(
      /global_step_2.actor has no weights .*Set the actor's `checkpoint\.load_contents` to \[optimizer\]/,
    );
    const resumed = await ppo("moments", only, longer);
    expect(resumed.code).toBe(0);
    expect(resumed.said).toMatch(/The weights of .*actor are not read .*: the actor starts from .*model\./);
    expect(resumed.said).not.toMatch(/actor's optimizer/);
  });

  test("takes verl's words and no others", async () => {
    const { code, said } = await ppo("words", `${actor}.save_contents=[weights]`);
    expect(code).toBe(2);
    expect(said).toMatch(/save_contents.*a list of some of `model`, `optimizer`, `extra`, `hf_model`/);
  });
});

describe("load_contents", () => {
  test("[model] reads no optimizer state, and says so", async () => {
    expect(await ppo("again")).toMatchObject({ code: 0 });
    expect(await ppo("again", longer)).toMatchObject({ code: 0, said: expect.not.stringMatching(/at zero/) });
    const continued = await yard.metrics("again");
    expect(await ppo("weights")).toMatchObject({ code: 0 });
    const { code, said } = await ppo("weights", `${actor}.load_contents=[model]`, longer);
    expect({ code, said }).toMatchObject({
      code: 0,
      said: expect.stringMatching(/actor's optimizer start at zero again/),
    });
    const other = await yard.metrics("weights");
    // The third step samples from the same weights, and its update has another size.
    expect(other.at(-1)!["critic/score/mean"]).toBe(continued.at(-1)!["critic/score/mean"]);
    const weights = (run: string) => readFile(yard.path(run, "global_step_3", "actor", "model.safetensors"));
    expect(await weights("weights")).not.toEqual(await weights("again"));
  });

  test("[model,optimizer] of a checkpoint without optimizer state starts the moments at zero, and says so", async () => {
    expect(await ppo("absent", `${actor}.save_contents=[model]`)).toMatchObject({ code: 0 });
    const { code, said } = await ppo("absent", longer);
    expect(code).toBe(0);
    expect(said).toMatch(
      /global_step_2.actor has no optimizer state: the moments of the actor's optimizer start at zero again/,
    );
  });
});

test("a step is saved because the machine is taken away soon, where checkpoints are on", async () => {
  const ends = { SAGEMAKER_CURRENT_CAPACITY_BLOCK_EXPIRATION_TIMESTAMP: `${Date.now() / 1000 + 300}` };
  const stepsOf = async (run: string, env: Record<string, string>, ...more: readonly string[]) => {
    const args = yard.args(run, [...keys, longer, ...more]);
    expect(await main(args, { HF_HUB_OFFLINE: "1", ...env })).toBe(0);
    return (await readdir(yard.path(run))).filter((name) => name.startsWith("global_step_")).sort();
  };
  const [seldom, early] = ["trainer.save_freq=100", "trainer.esi_redundant_time=600"];
  const all = ["global_step_1", "global_step_2", "global_step_3"];
  expect(await stepsOf("ends", ends, seldom, early)).toEqual(all);
  expect(await stepsOf("ends-later", ends, seldom)).toEqual(["global_step_3"]);
  expect(await stepsOf("ends-never", {}, seldom, early)).toEqual(["global_step_3"]);
  expect(await stepsOf("ends-unsaved", ends, "trainer.save_freq=-1", early)).toEqual([]);
});

describe("the end of a run", () => {
  const anew = "trainer.total_training_steps=1";

  test("without save_freq names the model of the last step and how to use it", async () => {
    const args = yard.args("default-saves", [...keys, anew]).filter((it) => !it.startsWith("trainer.save_freq"));
    const { code, said } = await yard.command(...args);
    const model = yard.path("default-saves", "global_step_1", "actor");
    // The model of these tests has no chat template.
    expect(said).toContain(
      `Done: 1 step. The model is in ${model}\nLet it continue texts: npx trainyard generate model.path=${model}`,
    );
    expect(code).toBe(0);
    expect(await readdir(model)).toContain("model.safetensors");
    await writeFile(`${yard.model}/chat_template.jinja`, "{{ messages[0].content }}");
    const talking = await yard.command(...args, `trainer.default_local_dir=${yard.path("talking")}`);
    await rm(`${yard.model}/chat_template.jinja`);
    expect(talking.said).toMatch(/Talk to it: npx trainyard chat .*talking\/global_step_1\/actor\n$/);
  });

  test("says that nothing was saved with save_freq=-1, and which key decides it", async () => {
    const { code, said } = await ppo("unsaved", anew, "trainer.save_freq=-1");
    expect(said).toMatch(
      /Done: 1 step\. No model was saved: `trainer\.save_freq` is -1\. Leave it out to save the last/,
    );
    expect(code).toBe(0);
    expect((await readdir(yard.path("unsaved"))).filter((name) => name.startsWith("global_step"))).toEqual([]);
  });

  test("says that a checkpoint without weights has no model", async () => {
    const { said } = await ppo("weightless", anew, `${actor}.save_contents=[optimizer]`);
    expect(said).toMatch(/No model was saved: `actor_rollout_ref\.actor\.checkpoint\.save_contents` has no `model`/);
  });
});

test("async_save=true ends with every byte of a run that waits for its checkpoints", async () => {
  const five = "trainer.total_training_steps=5";
  expect(await ppo("waiting", five)).toMatchObject({ code: 0 });
  expect(await ppo("background", five, `${actor}.async_save=true`)).toMatchObject({
    code: 0,
    said: expect.not.stringMatching(/async_save/),
  });
  expect(await yard.outcome("background")).toEqual(await yard.outcome("waiting"));
  for (const step of [1, 2, 3, 4, 5]) {
    const folder = (run: string) => checksums(yard.path(run, `global_step_${step}`));
    expect(await folder("background")).toEqual(await folder("waiting"));
  }
  expect((await readdir(yard.path("background"))).sort()).toEqual((await readdir(yard.path("waiting"))).sort());
});
