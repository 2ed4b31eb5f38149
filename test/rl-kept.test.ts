/** What a run keeps beside its checkpoints: rollouts to look at, the best model, and what a skipped update was made of. */
import { readdir, readFile } from "node:fs/promises";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { actorLoss } from "../src/algos/losses/actor-loss.ts";
import { valueLoss } from "../src/algos/losses/value-loss.ts";
import type { PpoConfig } from "../src/config/ppo/schema.ts";
import { actorSettings, criticSettings } from "../src/config/ppo/settings.ts";
import { EmbeddedEngine } from "../src/engine/embedded/engine.ts";
import type { RewardFunction } from "../src/rewards/reward.ts";
import { type Rollouts, RolloutsReader } from "../src/run/rollouts.ts";
import { sevens, Yard } from "./rl-yard.ts";
import { checksums } from "./sandbox.ts";

let yard: Yard;
beforeAll(async () => {
  yard = await Yard.make();
});
afterAll(() => yard.remove());

const actor = "actor_rollout_ref.actor";

describe("rollouts.jsonl", () => {
  /** All lines of a run, those of training and those of validation. */
  async function rolloutsOf(run: string): Promise<{ train: Rollouts[]; val: Rollouts[] }> {
    const reader = new RolloutsReader(yard.path(run));
    await reader.refresh();
    const read = async (kind: "train" | "val") =>
      await Promise.all(reader.entries(kind).map(async ({ step }) => (await reader.read(kind, step))!));
    expect(reader.unreadable).toBe(0);
    return { train: await read("train"), val: await read("val") };
  }

  test("holds the responses that the metrics are of, token by token", async () => {
    const keys = [`data.val_files=${yard.validation}`, "trainer.test_freq=1"];
    const metrics = await yard.play("watched", keys);
    const { train, val } = await rolloutsOf("watched");
    expect([train.map(({ step }) => step), val.map(({ step }) => step)]).toEqual([
      [1, 2],
      [0, 1, 2],
    ]);
    for (const { step, groups } of train) {
      expect(groups.map(({ episodes }) => episodes.length)).toEqual([4, 4, 4, 4]);
      const episodes = groups.flatMap((group) => group.episodes);
      const mean = episodes.reduce((sum, { score }) => sum + score!, 0) / 16;
      expect(mean).toBeCloseTo(metrics[step]!["critic/score/mean"]!, 4);
      for (const { tokens, response, logprobs, advantages, extra } of episodes) {
        expect(tokens.join("").replaceAll(/[SEPU]/g, "")).toBe(response); // a text has no special tokens
        expect([logprobs.length, advantages!.length]).toEqual([tokens.length, tokens.length]);
        expect(extra).toMatchObject({ acc: response.includes("7") ? 1 : 0, early: response.length < 6 ? 1 : 0 });
      }
      // The sampler's log-probs are checked, with the entropy, on eight episodes.
      expect(episodes.filter(({ entropy, tokens }) => entropy?.length === tokens.length)).toHaveLength(8);
    }
    const asked = (rollouts: Rollouts) => rollouts.groups.map(({ prompt, truth }) => `${prompt} ${truth}`);
    expect(val.map(asked)).toEqual([asked(val[0]!), asked(val[0]!), asked(val[0]!)]);
    expect(asked(val[0]!).sort()).toEqual(["6,8: 16", "7,1: 17", "8,4: 18", "9,7: 19"]);
  });

  test("is as long as trainer.logged_tokens says, in whole groups", async () => {
    await yard.play("few", ["trainer.logged_tokens=50", "actor_rollout_ref.rollout.ignore_eos=true"]);
    for (const { groups } of (await rolloutsOf("few")).train)
      expect(groups.map(({ episodes }) => episodes.map(({ tokens }) => tokens.length))).toEqual([
        [6, 6, 6, 6],
        [6, 6, 6, 6],
      ]);
  });

  test("is not there where that is 0", async () => {
    await yard.play("unwatched", [
      `data.val_files=${yard.validation}`,
      "trainer.test_freq=1",
      "trainer.logged_tokens=0",
    ]);
    expect(await readdir(yard.path("unwatched"))).not.toContain("rollouts.jsonl");
  });
});

describe("the best model", () => {
  const metric = "val-core/even/acc/mean@1";
  const keys = () => [
    "trainer.test_freq=1",
    "trainer.save_freq=1",
    "trainer.total_training_steps=4",
    `trainer.best_metric=${metric}`,
    `data.val_files=${yard.validation}`,
  ];
  /** Validations score as told, one after the other; training as ever. */
  const told = (values: readonly number[]): RewardFunction => {
    let answers = 0;
    return (input) => {
      if (Number(input.extraInfo.index) < 16) return sevens(input);
      return { score: 0, acc: values[Math.floor(answers++ / 4)]! };
    };
  };
  const read = async (run: string) => JSON.parse(await readFile(yard.path(run, "best", "best.json"), "utf8"));
  /** The weights, config and tokenizer of a folder. */
  const model = async (...names: readonly string[]) =>
    Object.fromEntries(
      Object.entries(await checksums(yard.path(...names))).filter(([name]) => !/^(best\.json|optimizer)/.test(name)),
    );

  test("is the actor of the best validation, the earliest of equals", async () => {
    await yard.play("best", keys(), told([0.2, 0.4, 0.9, 0.1, 0.9]));
    expect(await read("best")).toEqual({ metric, step: 2, value: 0.9 });
    expect(await model("best", "best")).toEqual(await model("best", "global_step_2", "actor"));
    expect(await model("best", "best")).not.toEqual(await model("best", "global_step_4", "actor"));
  });

  test("is the one that training began with, where nothing was better", async () => {
    await yard.play("worse", keys(), told([0.5, 0.4, 0.3, 0.2, 0.1]));
    expect(await read("worse")).toEqual({ metric, step: 0, value: 0.5 });
  });

  test("of another metric is looked for anew where a run goes on with that one", async () => {
    const first = [...keys(), "trainer.total_training_steps=2"];
    await yard.play("other", first, told([0.2, 0.9, 0.3]));
    const other = "val-aux/odd/reward/mean@1";
    await yard.play("other", [...keys(), `trainer.best_metric=${other}`], told([0.1, 0.1, 0.1]));
    // The resumed run validates step 2 first, which changes nothing in its folder.
    expect(await read("other")).toEqual({ metric: other, step: 3, value: 0 });
  });
});

describe("what an update without a finite gradient was made of", () => {
  type Batch = {
    readonly role: "actor" | "critic";
    readonly loss: string;
    readonly gradNorm: number | null;
    readonly scalars: Record<string, number>;
    readonly rows: readonly {
      readonly ids: number[];
      readonly mask: number[];
      readonly extra: Record<string, (number | null)[]>;
    }[];
  };
  const optimizer = { lr: 1e-3, betas: [0.9, 0.999] as const, eps: 1e-8, weightDecay: 0, maxNorm: 1 };

  /** The norm of the gradient of a kept batch at the weights of a folder. */
  async function normAt(weights: string, run: string, batch: Batch): Promise<number> {
    const config: PpoConfig = JSON.parse(await readFile(yard.path(run, "config.json"), "utf8"));
    const { temperature } = config.actor_rollout_ref.rollout;
    const traced = batch.role === "actor" ? actorLoss(actorSettings(config)) : valueLoss(criticSettings(config));
    const loss = batch.role === "actor" ? { ...traced, key: `${traced.key} at ${temperature}`, temperature } : traced;
    expect(batch.loss).toBe(loss.key);
    const numbers = (row: readonly (number | null)[]) => Float32Array.from(row, (value) => value ?? Number.NaN);
    const rows = batch.rows.map(({ ids, mask, extra }) => ({
      ids: Int32Array.from(ids),
      mask,
      extra: Object.fromEntries(Object.entries(extra).map(([name, row]) => [name, numbers(row)])),
    }));
    const engine = new EmbeddedEngine({ threads: 1 });
    try {
      const model = await engine.open({ folder: weights, ...(batch.role === "critic" && { head: "value", seed: 1 }) });
      await model.train(rows, loss, { micro: { maxTokens: 256 }, scalars: batch.scalars });
      return (await model.step(optimizer)).gradNorm;
    } finally {
      await engine.close();
    }
  }

  test.each(["actor", "critic"] as const)(
    "of the %s is kept once, and gives no finite gradient again",
    async (role) => {
      const rate = role === "actor" ? `${actor}.optim.lr=1e25` : "critic.optim.lr=1e25";
      const run = `blown-${role}`;
      const keys = ["algorithm.adv_estimator=gae", rate, `${actor}.ppo_epochs=2`, "critic.ppo_epochs=2"];
      await yard.play(run, keys);
      const kept = (await readdir(yard.path(run))).filter((name) => name.startsWith("skipped_"));
      expect(kept).toEqual(["skipped_step_1"]);
      const folder = yard.path(run, "skipped_step_1");
      const batch: Batch = JSON.parse(await readFile(`${folder}/batch.json`, "utf8"));
      expect(batch).toMatchObject({ role, step: 1, gradNorm: null });
      expect(batch.rows).toHaveLength(8);
      expect(await normAt(folder, run, batch)).not.toSatisfy(Number.isFinite);
      expect(await normAt(yard.model, run, batch)).toSatisfy(Number.isFinite);
      const said = await readFile(yard.path(run, "log.txt"), "utf8");
      expect(said.match(/warning: The weights and the batch of an update .* are in /g)).toHaveLength(1);
    },
  );
});
