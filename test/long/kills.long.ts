/** Twenty more kills, of runs of another kind than those of test/rl-kills.test.ts, at moments of any kind. */
import { readdir } from "node:fs/promises";
import { afterAll, beforeAll, expect, test } from "vitest";
import { Random } from "../../src/util/random.ts";
import { killAgainAndAgain, type Moment, RewardService } from "../rl-kills.ts";
import { Yard } from "../rl-yard.ts";

let yard: Yard;
let service: RewardService;
beforeAll(async () => {
  yard = await Yard.make();
  service = await RewardService.open();
});
afterAll(async () => {
  await service.close();
  yard.remove();
});

const actor = "actor_rollout_ref.actor";
const kinds: readonly Moment[] = ["sampling", "updating", "saving", "logging", "pruning"];

/** Ten moments, two of each kind, in an order of the seed. */
const momentsOf = (seed: number): Moment[] =>
  [...new Random(seed, "order").permutation(10)].map((i) => kinds[i % kinds.length]!);

const ways: readonly (readonly [what: string, seed: number, keys: readonly string[]])[] = [
  [
    "that sample groups anew until they tell something",
    11,
    [
      "algorithm.filter_groups.enable=true",
      "algorithm.filter_groups.max_num_gen_batches=20",
      `${actor}.use_kl_loss=true`,
      `${actor}.use_dynamic_bsz=true`,
      `${actor}.optim.lr=1e-3`,
    ],
  ],
  [
    "with a critic that warms up, saved every other step",
    12,
    ["algorithm.adv_estimator=gae", "trainer.critic_warmup=4", "trainer.save_freq=2"],
  ],
];
test.each(ways)("ten kills of runs %s", async (what, seed, more) => {
  const keys = [
    ...service.keys,
    "trainer.total_training_steps=40",
    "trainer.save_freq=1",
    "trainer.max_actor_ckpt_to_keep=2",
    `data.val_files=${yard.validation}`,
    "trainer.test_freq=3",
    "trainer.best_metric=val-core/odd/acc/mean@1",
    ...more,
  ];
  const [whole, killed] = [`whole-${seed}`, `killed-${seed}`];
  expect(await yard.command(...yard.args(whole, keys))).toMatchObject({ code: 0 });
  const ends = await killAgainAndAgain(yard, killed, { keys, service, seed, moments: momentsOf(seed) });
  for (const { moment, ended, scored, hasLeftover } of ends) {
    const place = `${scored} responses of the step scored${hasLeftover ? ", a folder half written or half deleted" : ""}`;
    process.stdout.write(`${what}: ${ended} while ${moment}, ${place}\n`);
  }
  expect(ends.map(({ ended }) => ended)).toEqual(Array(10).fill("SIGKILL"));
  expect(await yard.command(...yard.args(killed, keys))).toMatchObject({ code: 0 });
  expect(await yard.outcome(killed)).toEqual(await yard.outcome(whole));
  expect((await readdir(yard.path(killed))).sort()).toEqual((await readdir(yard.path(whole))).sort());
});
