/** A run with a sampler and a data generator that is killed by `kill -9` ends as if it had never been. */
import { readdir, readFile, writeFile } from "node:fs/promises";
import { afterAll, beforeAll, expect, test } from "vitest";
import { killAgainAndAgain, RewardService } from "./rl-kills.ts";
import { Yard } from "./rl-yard.ts";

const sampler = `
import { defineSampler } from "trainyard";

/** Rows whose responses had the lowest scores come first; rows that were not seen yet come before them. */
export default defineSampler({
  state: { scores: {} as Record<string, number> },
  next(state, { rows, batchSize, random }) {
    const order = rows.map((_, index) => ({ index, score: state.scores[index] ?? -1, tie: random() }));
    return order
      .toSorted((a, b) => a.score - b.score || a.tie - b.tie)
      .slice(0, batchSize)
      .map(({ index }) => index);
  },
  update(state, { groups, metrics }) {
    for (const { index, responses } of groups)
      state.scores[index] = Math.max(...responses.map(({ score }) => score ?? 0)) + metrics["actor/grad_norm"]!;
  },
});
`;

const generator = `
import { defineDataGenerator } from "trainyard";

export default defineDataGenerator({
  state: { made: 0 },
  generate(state, { groups, random }) {
    const [{ row }] = groups;
    const digit = Math.floor(random() * 10);
    return [{ ...row, prompt: digit + ":", reward_model: { ground_truth: "made " + state.made++ } }];
  },
});
`;

let yard: Yard;
let service: RewardService;
beforeAll(async () => {
  yard = await Yard.make();
  service = await RewardService.open();
  await writeFile(yard.path("sampler.ts"), sampler);
  await writeFile(yard.path("generator.ts"), generator);
});
afterAll(async () => {
  await service.close();
  yard.remove();
});

test("by kill -9, with checkpoints that are written in the background", { timeout: 300_000 }, async () => {
  const keys = [
    ...service.keys,
    `data.sampler.class_path=${yard.path("sampler.ts")}`,
    `data.datagen.path=${yard.path("generator.ts")}`,
    "actor_rollout_ref.actor.checkpoint.async_save=true",
    "trainer.total_training_steps=12",
    "trainer.save_freq=1",
    "trainer.max_actor_ckpt_to_keep=2",
    "trainer.logged_tokens=100000",
  ];
  const whole = yard.startSft("whole", ...keys);
  expect([await whole.ended, whole.said]).toEqual([0, expect.any(String)]);
  const killed = await killAgainAndAgain(yard, "killed", {
    keys,
    service,
    seed: 7,
    moments: ["sampling", "pruning", "updating", "pruning", "saving", "pruning", "sampling"],
  });
  for (const { moment, ended, said } of killed)
    expect([moment, ended, said]).toEqual([moment, "SIGKILL", expect.not.stringMatching(/bug|Error/)]);
  const last = yard.startSft("killed", ...keys);
  expect([await last.ended, last.said]).toEqual([0, expect.stringMatching(/Resuming from /)]);
  expect(await yard.outcome("killed")).toEqual(await yard.outcome("whole"));
  expect((await readdir(yard.path("killed"))).sort()).toEqual((await readdir(yard.path("whole"))).sort());
  const state = JSON.parse(await readFile(yard.path("killed", "global_step_12", "state.json"), "utf8"));
  expect([state.datagen.rows.length, state.datagen.state, state.loader.batches]).toEqual([12, { made: 12 }, 12]);
});
