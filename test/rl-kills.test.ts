/** A run that is killed by `kill -9` again and again ends with every byte of one that was not; so does one after Ctrl-C. */
import { readdir, readFile } from "node:fs/promises";
import { afterAll, beforeAll, expect, test } from "vitest";
import { killAgainAndAgain, RewardService } from "./rl-kills.ts";
import { Yard } from "./rl-yard.ts";
import { pause } from "./sandbox.ts";

const actor = "actor_rollout_ref.actor";

let yard: Yard;
let service: RewardService;
let keys: string[] = [];
beforeAll(async () => {
  yard = await Yard.make();
  service = await RewardService.open();
  keys = [
    "algorithm.adv_estimator=gae",
    "algorithm.use_kl_in_reward=true",
    "algorithm.kl_ctrl.type=adaptive",
    ...service.keys,
    `${actor}.ppo_epochs=2`,
    `${actor}.shuffle=true`,
    `data.val_files=${yard.validation}`,
    "trainer.total_training_steps=24",
    "trainer.test_freq=2",
    "trainer.save_freq=1",
    "trainer.max_actor_ckpt_to_keep=2",
    "trainer.best_metric=val-core/even/acc/mean@1",
  ];
  expect(await ppo("whole")).toMatchObject({ code: 0 });
});
afterAll(async () => {
  await service.close();
  yard.remove();
});

const ppo = (run: string, ...more: readonly string[]) => yard.command(...yard.args(run, [...keys, ...more]));

test("by kill -9, ten times in a row", { timeout: 300_000 }, async () => {
  const killed = await killAgainAndAgain(yard, "killed", {
    keys,
    service,
    seed: 3,
    moments: [
      ...(["starting", "sampling", "updating", "saving", "sampling"] as const),
      ...(["logging", "updating", "pruning", "saving", "updating"] as const),
    ],
  });
  for (const { moment, ended, said, scored } of killed) {
    expect([moment, ended, said]).toEqual([moment, "SIGKILL", expect.not.stringMatching(/bug|Error/)]);
    if (moment === "sampling") expect(scored).toBeGreaterThan(0);
  }
  expect(await ppo("killed")).toMatchObject({ code: 0, said: expect.stringMatching(/Resuming from /) });
  const whole = await yard.outcome("whole");
  expect(await yard.outcome("killed")).toEqual(whole);
  expect((await readdir(yard.path("killed"))).sort()).toEqual((await readdir(yard.path("whole"))).sort());
  expect([whole.lines.length, whole.rollouts.length, Object.keys(whole.best).length > 2]).toEqual([26, 38, true]);
});

test("by kill -9, with checkpoints that are written in the background", { timeout: 300_000 }, async () => {
  const background = [...keys, `${actor}.checkpoint.async_save=true`];
  const killed = await killAgainAndAgain(yard, "background", {
    keys: background,
    service,
    seed: 5,
    moments: ["saving", "updating", "sampling", "saving", "pruning", "logging", "saving"],
  });
  for (const { moment, ended, said } of killed)
    expect([moment, ended, said]).toEqual([moment, "SIGKILL", expect.not.stringMatching(/bug|Error/)]);
  expect(await ppo("background", `${actor}.checkpoint.async_save=true`)).toMatchObject({ code: 0 });
  expect(await yard.outcome("background")).toEqual(await yard.outcome("whole"));
  expect((await readdir(yard.path("background"))).sort()).toEqual((await readdir(yard.path("whole"))).sort());
});

test("by Ctrl-C, which saves and exits 130", { timeout: 300_000 }, async () => {
  const seldom = "trainer.save_freq=24";
  const child = yard.startSft("interrupted", ...keys, seldom);
  while (child.isRunning && (await yard.metrics("interrupted").catch(() => [])).length < 3) await pause(5);
  child.process.kill("SIGINT");
  expect(await child.ended).toBe(130);
  const [, step] = /Stopped after step (\d+) of 24 and saved\. The same command resumes from/.exec(child.said) ?? [];
  expect(await readFile(yard.path("interrupted", "latest_checkpointed_iteration.txt"), "utf8")).toBe(step);
  expect(await ppo("interrupted", seldom)).toMatchObject({ code: 0 });
  expect(await yard.outcome("interrupted")).toEqual(await yard.outcome("whole"));
});
