/** Laws of reinforcement learning: what must be equal between runs, what must not, and that it learns. */
import { readFile } from "node:fs/promises";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { Random } from "../src/util/random.ts";
import { sevens, Yard } from "./rl-yard.ts";

let yard: Yard;
beforeAll(async () => {
  yard = await Yard.make();
});
afterAll(() => yard.remove());

const actor = "actor_rollout_ref.actor";
const rollout = "actor_rollout_ref.rollout";
const gae = ["algorithm.adv_estimator=gae", "algorithm.use_kl_in_reward=true"];

/** The largest difference of any metric that both runs have, at any step. */
function gap(a: readonly Record<string, number>[], b: readonly Record<string, number>[], names: RegExp): number {
  expect(a).toHaveLength(b.length);
  const gaps = a.flatMap((data, step) =>
    Object.keys(data)
      .filter((name) => names.test(name))
      .map((name) => Math.abs(data[name]! - b[step]![name]!)),
  );
  expect(gaps.length).toBeGreaterThan(a.length);
  return Math.max(...gaps);
}

describe("the seed", () => {
  const keys = [...gae, `data.val_files=${"VAL"}`, "trainer.test_freq=1"];
  const run = (name: string, seed: number) =>
    yard.play(name, [...keys.map((key) => key.replace("VAL", yard.validation)), `trainer.seed=${seed}`]);

  test("decides every byte of weights, optimizers and metrics", async () => {
    await run("seed1", 1);
    await run("seed1-again", 1);
    expect(await yard.outcome("seed1-again")).toEqual(await yard.outcome("seed1"));
    expect(Object.keys((await yard.outcome("seed1")).files)).toEqual(
      expect.arrayContaining(["actor/model.safetensors", "critic/optimizer/optimizer.safetensors", "state.json"]),
    );
  });

  test("of another number gives another run", async () => {
    await run("seed2", 2);
    const [one, two] = [await yard.outcome("seed1"), await yard.outcome("seed2")];
    expect(two.lines).not.toEqual(one.lines);
    expect(two.files["actor/model.safetensors"]).not.toBe(one.files["actor/model.safetensors"]);
  });
});

describe("the sampler is the trainer", () => {
  const onePass = ["trainer.total_training_steps=4", `${actor}.ppo_mini_batch_size=4`];
  test.each([1, 0.7, 1.4])(
    "at temperature %d: their log-probs agree, and the first ratio is 1",
    async (temperature) => {
      const metrics = await yard.play(`heat${temperature}`, [...onePass, `${rollout}.temperature=${temperature}`]);
      for (const data of metrics) {
        expect(data["training/rollout_probs_diff_max"]).toBeLessThan(1e-4);
        expect(Math.abs(data["actor/ppo_kl"]!)).toBeLessThan(1e-5);
        expect(data["actor/pg_clipfrac"]).toBe(0);
      }
    },
  );

  test("log-probs computed anew change the losses by rounding alone", async () => {
    const keys = [...gae, ...onePass, `${actor}.ppo_epochs=2`, `${actor}.optim.lr=1e-3`];
    const skipped = await yard.play("skipped", keys);
    const anew = await yard.play("anew", [...keys, `${actor}.recompute_old_log_prob=true`]);
    expect(gap(skipped, anew, /^(actor|critic)\/(?!entropy)/)).toBeLessThan(1e-4);
    const timed = await yard.metrics("anew", { withTimings: true });
    expect(timed.map((data) => "timing_s/old_log_prob" in data)).toEqual([true, true, true, true]);
    const saved = await yard.metrics("skipped", { withTimings: true });
    expect(saved.some((data) => "timing_s/old_log_prob" in data)).toBe(false);
  });

  test("a distribution that is cut off is not the trainer's, so log-probs are computed anew", async () => {
    await yard.play("cut-off", [`${rollout}.top_k=3`]);
    const [data] = await yard.metrics("cut-off", { withTimings: true });
    expect(data).toHaveProperty(["timing_s/old_log_prob"]);
    expect(data!["training/rollout_probs_diff_max"]).toBeGreaterThan(0.01);
  });
});

test("how passes are cut changes results by rounding alone", async () => {
  const cuts: readonly (readonly string[])[] = [
    [],
    [`${actor}.ppo_micro_batch_size_per_gpu=1`, "critic.ppo_micro_batch_size_per_gpu=3"],
    [`${actor}.use_dynamic_bsz=true`, `${actor}.ppo_max_token_len_per_gpu=23`, "critic.ppo_max_token_len_per_gpu=40"],
    [`${rollout}.log_prob_micro_batch_size_per_gpu=3`, "actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu=5"],
  ];
  const keys = [...gae, `${actor}.recompute_old_log_prob=true`, `${actor}.optim.lr=1e-3`, "critic.optim.lr=1e-3"];
  const runs = [];
  for (const [i, cut] of cuts.entries()) runs.push(await yard.play(`cut${i}`, [...keys, ...cut]));
  for (const other of runs.slice(1)) expect(gap(runs[0]!, other, /^(actor|critic)\//)).toBeLessThan(1e-4);
});

describe("it learns", () => {
  const keys = [
    "data.train_batch_size=8",
    `${actor}.ppo_mini_batch_size=8`,
    `${rollout}.n=8`,
    `${actor}.optim.lr=2e-2`,
    "trainer.total_training_steps=30",
    "trainer.save_freq=-1",
  ];
  const last = (metrics: readonly Record<string, number>[]) =>
    metrics.slice(-5).reduce((sum, data) => sum + data["critic/score/mean"]!, 0) / 5;

  test("to write sevens, by grpo", async () => {
    const metrics = await yard.play("learning", keys);
    expect(metrics[0]!["critic/score/mean"]).toBeLessThan(0.2);
    expect(last(metrics)).toBeGreaterThan(0.8);
  });

  test("nothing where the rewards are shuffled among responses", async () => {
    const random = new Random(7);
    const earned: number[] = [];
    await yard.play("shuffled", keys, ({ response }) => {
      earned.push((response.split("7").length - 1) / 6);
      return earned[random.int(earned.length)]!; // what some response up to now has earned
    });
    expect(earned).toHaveLength(30 * 64);
    expect(earned.slice(-5 * 64).reduce((sum, share) => sum + share, 0) / (5 * 64)).toBeLessThan(0.3);
  });
});

describe("asked to stop", () => {
  const keys = ["trainer.total_training_steps=4", "trainer.save_freq=4", ...gae, "algorithm.kl_ctrl.type=adaptive"];
  const best = "trainer.best_metric=val-aux/odd/reward/mean@1";
  const validating = () => [...keys, `data.val_files=${yard.validation}`, "trainer.test_freq=2", best];
  const perStep = 16;
  const before = 4; // validation before the first step scores so many

  beforeAll(async () => {
    await yard.play("unbroken", validating());
  });

  // The number of the score at which the user asks, and the step that is then kept.
  const cases: readonly (readonly [when: string, at: number, kept: number | null])[] = [
    ["before training", 2, null],
    ["in the first step's sampling", before + 1, null],
    ["in the second step's sampling", before + perStep + 3, 1],
    ["while the second step is validated", before + 2 * perStep + 2, 2],
    ["in the third step's sampling, which validation came before", before + 2 * perStep + 4 + 1, 2],
  ];
  test.each(cases)("%s, it keeps what is learnt, and going on gives the unbroken run", async (when, at, kept) => {
    const run = when.replaceAll(/\W/g, "-");
    const controller = new AbortController();
    let scored = 0;
    const stopping = yard.play(
      run,
      validating(),
      (input) => {
        if (++scored === at) controller.abort();
        return sevens(input);
      },
      controller.signal,
    );
    if (when === "before training") await expect(stopping).rejects.toThrow(/abort/);
    else await stopping;
    const pointer = readFile(yard.path(run, "latest_checkpointed_iteration.txt"), "utf8");
    expect(await pointer.catch(() => null)).toBe(kept === null ? null : `${kept}`);
    await yard.play(run, validating());
    expect(await yard.outcome(run)).toEqual(await yard.outcome("unbroken"));
  });
});
