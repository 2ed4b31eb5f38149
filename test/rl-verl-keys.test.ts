/** Keys of verl that `trainyard ppo` honours around the update: mini-batches, validation, retention of checkpoints. */
import { existsSync } from "node:fs";
import { cp, readdir, readFile, writeFile } from "node:fs/promises";
import { afterAll, beforeAll, expect, test } from "vitest";
import { Yard } from "./rl-yard.ts";

let yard: Yard;
let reward: string[] = [];
beforeAll(async () => {
  yard = await Yard.make();
  const path = yard.path("reward.ts");
  await writeFile(
    path,
    'export const compute_score = ({ response }: { response: string }) => response.split("7").length - 1;\n',
  );
  reward = [`custom_reward_function.path=${path}`, "reward_model.num_workers=1"];
});
afterAll(() => yard.remove());

const actor = "actor_rollout_ref.actor";
const gae = "algorithm.adv_estimator=gae";
const ppo = (run: string, ...overrides: readonly string[]) => yard.command(...yard.args(run, overrides));
const steps = (count: number) => `trainer.total_training_steps=${count}`;

/** How many updates the optimizer in a checkpoint has made. */
async function updatesIn(run: string, step: number, role: string): Promise<number> {
  const file = await readFile(yard.path(run, `global_step_${step}`, role, "optimizer", "optimizer.safetensors"));
  const header = JSON.parse(file.subarray(8, 8 + Number(file.readBigUInt64LE())).toString());
  return Number(header.__metadata__.step);
}

test("a mini-batch size that does not divide the batch leaves a smaller last mini-batch", async () => {
  const sizes = [`${actor}.ppo_mini_batch_size=3`, "critic.ppo_mini_batch_size=1", `${actor}.ppo_epochs=2`];
  const { code, said } = await ppo("rest", gae, ...reward, ...sizes, "critic.ppo_epochs=1");
  expect({ code, said }).toMatchObject({ code: 0 });
  // Four prompts per step: 3 and 1 twice for the actor, 1 four times for the critic.
  expect([await updatesIn("rest", 2, "actor"), await updatesIn("rest", 2, "critic")]).toEqual([8, 8]);
});

test("handle_zero_tail decides whether the end of a group's longest response has a baseline", async () => {
  const estimator = ["algorithm.adv_estimator=optimal_token_baseline", `${actor}.calculate_sum_pi_squared=true`];
  const advantages = async (run: string, ...keys: readonly string[]) => {
    const { code, said } = await ppo(run, ...reward, ...estimator, steps(1), "data.max_response_length=24", ...keys);
    expect({ code, said }).toMatchObject({ code: 0 });
    return (await yard.metrics(run))[0]!["critic/advantages/mean"];
  };
  const tailWithout = await advantages("tail-without");
  expect(await advantages("tail-with", "algorithm.handle_zero_tail=false")).not.toEqual(tailWithout);
});

test("with validation_shuffle every validation has another order of the same prompts, in every run", async () => {
  const dumped = async (run: string, ...keys: readonly string[]): Promise<string[][]> => {
    const dir = yard.path(`${run}-dumps`);
    const validation = [`data.val_files=${yard.train}`, "trainer.test_freq=1", `trainer.validation_data_dir=${dir}`];
    expect(await ppo(run, ...reward, ...validation, ...keys)).toMatchObject({ code: 0 });
    const files = [0, 1, 2].map((step) => readFile(`${dir}/${step}.jsonl`, "utf8"));
    return (await Promise.all(files)).map((text) => {
      const lines = text.trim().split("\n");
      return lines.map((line) => JSON.parse(line).input);
    });
  };
  const [inOrder, ...later] = await dumped("in-order");
  for (const inputs of later) expect(inputs).toEqual(inOrder);
  const shuffled = await dumped("shuffled", "data.validation_shuffle=true");
  for (const inputs of shuffled) {
    expect(inputs).not.toEqual(inOrder);
    expect(inputs.toSorted()).toEqual(inOrder!.toSorted());
  }
  expect(new Set(shuffled.map((inputs) => inputs.join()))).toHaveProperty("size", 3);
  expect(await dumped("shuffled-again", "data.validation_shuffle=true")).toEqual(shuffled);
  // The prompts that people compare from step to step stay the same.
  const rollouts = (await readFile(yard.path("shuffled", "rollouts.jsonl"), "utf8")).trim().split("\n");
  const logged = rollouts.map((line) => JSON.parse(line)).filter(({ kind }) => kind === "val");
  const prompts = logged.map(({ groups }) => groups.map(({ prompt }: { prompt: string }) => prompt).toSorted());
  expect(prompts).toHaveLength(3);
  for (const some of prompts) expect(some).toEqual(prompts[0]);
});

test("a resumed run validates first where val_before_train says so, and ends like an uninterrupted one", async () => {
  const metric = "val-core/even/acc/mean@1";
  const keys = (run: string) => [
    ...reward,
    steps(4),
    `data.val_files=${yard.validation}`,
    `trainer.best_metric=${metric}`,
    "trainer.test_freq=4",
    "trainer.save_freq=1",
    "actor_rollout_ref.rollout.val_kwargs.temperature=1",
    ...["trainer.logger=[file]", "trainer.project_name=logs", `trainer.experiment_name=${run}`],
  ];
  const trackedSteps = async (run: string): Promise<number[]> => {
    const lines = (await readFile(yard.path("logs", `${run}.jsonl`), "utf8")).trim().split("\n");
    const records: { step: number; data: Record<string, number> }[] = lines.map((line) => JSON.parse(line));
    return records.filter(({ data }) => metric in data).map(({ step }) => step);
  };
  expect(await ppo("straight", ...keys("straight"))).toEqual({ code: 0, said: expect.any(String) });
  for (const [run, validates, tracked] of [
    ["validated", true, [3, 4]],
    ["not-validated", false, [4]],
  ] as const) {
    await cp(yard.path("straight"), yard.path(run), { recursive: true });
    const from = [
      "trainer.resume_mode=resume_path",
      `trainer.resume_from_path=${yard.path(run, "global_step_3")}`,
      `trainer.val_before_train=${validates}`,
    ];
    expect(await ppo(run, ...keys(run), ...from)).toMatchObject({ code: 0 });
    expect(await trackedSteps(run)).toEqual(tracked);
    expect(await yard.outcome(run)).toEqual(await yard.outcome("straight"));
  }
});

test("of actors and critics different numbers are kept, and an incomplete checkpoint is not resumed from", async () => {
  const keep = (actors: number, critics: number) => [
    `trainer.max_actor_ckpt_to_keep=${actors}`,
    `trainer.max_critic_ckpt_to_keep=${critics}`,
  ];
  const keys = [gae, ...reward, "trainer.save_freq=1"];
  const kept = async (run: string) => {
    const checkpoints = (await readdir(yard.path(run))).filter((name) => name.startsWith("global_step_")).toSorted();
    return checkpoints.map((name) =>
      ["actor", "critic", "state.json"].filter((part) => existsSync(yard.path(run, name, part))).join(),
    );
  };
  expect(await ppo("actors", ...keys, ...keep(3, 1), steps(4))).toMatchObject({ code: 0 });
  expect(await kept("actors")).toEqual(["actor", "actor", "actor,critic,state.json"]);
  expect(await ppo("critics", ...keys, ...keep(1, 2), steps(4))).toMatchObject({ code: 0 });
  expect(await kept("critics")).toEqual(["critic", "actor,critic,state.json"]);

  const from = ["trainer.resume_mode=resume_path", `trainer.resume_from_path=${yard.path("actors", "global_step_3")}`];
  const { code, said } = await ppo("actors", ...keys, ...from, steps(5));
  expect({ code, said }).toEqual({
    code: 2,
    said: expect.stringMatching(/global_step_3, which has no readable state/),
  });
  expect(await ppo("actors", ...keys, ...keep(3, 1), steps(5))).toMatchObject({ code: 0 });
  expect(await kept("actors")).toEqual(["actor", "actor", "actor,critic,state.json"]);
});
