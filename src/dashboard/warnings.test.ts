import { describe, expect, test } from "vitest";
import { ppoSchema } from "../config/ppo/schema.ts";
import { fieldsOf } from "../config/schema.ts";
import { Random } from "../util/random.ts";
import type { Evidence } from "./evidence.ts";
import { findWarnings, type WarningId } from "./warnings.ts";

type Curve = (step: number) => number;

/** Two hundred steps of a run that is well, with some of its metrics changed. */
function run(changes: Readonly<Record<string, Curve>> = {}, rest: Partial<Evidence> = {}): Evidence {
  const count = 200;
  const curves: Record<string, Curve> = { ...healthy, ...changes };
  const steps = Array.from({ length: count }, (_, i) => i + 1);
  return {
    steps,
    column: (name) => (curves[name] === undefined ? null : steps.map(curves[name])),
    notFiniteSince: () => [],
    ...rest,
  };
}

const noise = (step: number, size: number) => (new Random(1, "noise", step).uniform() - 0.5) * size;
const rising: Curve = (step) => 0.2 + 0.003 * step + noise(step, 0.05);

const healthy: Readonly<Record<string, Curve>> = {
  "critic/score/mean": rising,
  "critic/score/max": () => 1,
  "critic/score/min": () => 0,
  "critic/advantages/max": () => 1.5,
  "critic/advantages/min": () => -1.5,
  "actor/entropy": (step) => 1 - 0.003 * step,
  "actor/ppo_kl": (step) => 0.001 + noise(step, 0.001),
  "actor/kl_loss": (step) => 0.0005 * step,
  "response_length/mean": (step) => 100 + 0.2 * step,
  "response_length/clip_ratio": () => 0.01,
  "training/rollout_probs_diff_mean": () => 1e-7,
};

const idsOf = (evidence: Evidence): string[] => findWarnings(evidence).map(({ id }) => id);

test("a run that learns has no warnings, at any length", () => {
  for (const rows of [0, 1, 5, 20, 50, 100, 200]) {
    const whole = run();
    const steps = Array.from(whole.steps).slice(0, rows);
    const part = {
      ...whole,
      steps,
      column: (name: string) => whole.column(name) && Array.from(whole.column(name)!).slice(0, rows),
    };
    expect([rows, idsOf(part)]).toEqual([rows, []]);
  }
});

/** For every warning a run that has it alone, and one that comes near and does not. */
const cases: Record<WarningId, { sick: Evidence; well: Evidence; level: string; text: RegExp }> = {
  "reward-flat": {
    sick: run({ "critic/score/mean": (step) => 0.3 + noise(step, 0.1) }),
    well: run({ "critic/score/mean": (step) => 0.3 + 0.0015 * step + noise(step, 0.1) }),
    level: "serious",
    text: /last 66 steps .* from 0\.\d+ to 0\.\d+, which is within its noise/,
  },
  "reward-falling": {
    sick: run({ "critic/score/mean": (step) => (step < 150 ? rising(step) : 0.35 - 0.002 * (step - 150)) }),
    well: run({ "critic/score/mean": (step) => rising(step) + 0.1 * Math.sin(step / 12) }),
    level: "serious",
    text: /was 0\.6\d* at step 149 and is 0\.2\d* now/,
  },
  "entropy-collapse": {
    sick: run({ "actor/entropy": (step) => Math.exp(-step / 20) }),
    well: run({ "actor/entropy": (step) => 0.2 + Math.exp(-step / 20) }),
    level: "serious",
    text: /fell from 0\.86\d* to \S+ nats per token/,
  },
  "kl-runaway": {
    sick: run({ "actor/kl_loss": (step) => 0.0001 * 1.05 ** step }),
    well: run({ "actor/kl_loss": (step) => 0.004 * step }),
    level: "serious",
    text: /is 1\.\d+ nats per token; in the first half of the run it was 0\.0\d+/,
  },
  "equal-groups": {
    sick: run({ "critic/advantages/max": () => 0, "critic/advantages/min": () => 0 }),
    well: run({ "critic/advantages/max": (step) => step % 3, "critic/advantages/min": (step) => -(step % 3) }),
    level: "serious",
    text: /In 10 of the last 10 steps every advantage is 0/,
  },
  truncation: {
    sick: run({ "response_length/clip_ratio": () => 0.4 }),
    well: run({ "response_length/clip_ratio": () => 0.04 }),
    level: "serious",
    text: /^40% of the responses of the last 10 steps reached/,
  },
  "length-blow-up": {
    sick: run({
      "response_length/mean": (step) => 50 + 2 * step,
      "critic/score/mean": (step) => (step < 100 ? rising(step) : 0.5 + noise(step, 0.05)),
    }),
    well: run({ "response_length/mean": (step) => 50 + 2 * step }),
    level: "notice",
    text: /went from 56 to 446 tokens; over the last 66 steps the reward stayed near 0\.\d+/,
  },
  "sampler-gap": {
    sick: run({ "training/rollout_probs_diff_mean": () => 0.02 }),
    well: run({ "training/rollout_probs_diff_mean": () => 0.004 }),
    level: "serious",
    text: /differ by 0\.02 on average/,
  },
  "not-finite": {
    sick: run({}, { notFiniteSince: (step) => (step > 100 ? ["actor/grad_norm"] : []) }),
    well: run({}, { notFiniteSince: (step) => (step <= 100 ? ["actor/grad_norm"] : []) }),
    level: "serious",
    text: /Since step 181, `actor\/grad_norm` had no finite value/,
  },
};

describe.each(Object.entries(cases))("%s", (id, { sick, well, level, text }) => {
  test("is seen, with its numbers, and what to try", () => {
    const found = findWarnings(sick).find((warning) => warning.id === id);
    expect(found).toMatchObject({ id, level, text: expect.stringMatching(text) });
    expect(found?.tries.length).toBeGreaterThan(0);
    expect(found?.since).toBeGreaterThan(0);
  });

  test("is not seen in a run that only comes close", () => {
    expect(idsOf(well)).not.toContain(id);
  });

  test("is not seen in the first steps", () => {
    const few = {
      ...sick,
      steps: [1, 2],
      column: (name: string) => sick.column(name) && Array.from(sick.column(name)!).slice(0, 2),
    };
    if (id !== "not-finite" && id !== "sampler-gap") expect(idsOf(few)).toEqual([]);
  });
});

test("a reward that rose and no longer rises is a notice, one that never rose is serious", () => {
  const stopped = run({ "critic/score/mean": (step) => Math.min(rising(step), 0.4 + noise(step, 0.05)) });
  expect(findWarnings(stopped)).toMatchObject([{ id: "reward-flat", level: "notice" }]);
});

test("a solved task is neither flat nor without entropy", () => {
  const solved = run({ "critic/score/mean": () => 0.99, "actor/entropy": (step) => Math.exp(-step / 10) });
  expect(idsOf(solved)).toEqual([]);
});

test("the newest groups show equal scores where the advantages do not", () => {
  expect(findWarnings(run({}, { groups: { equal: 8, total: 10 } }))).toMatchObject([
    { id: "equal-groups", level: "notice", text: expect.stringMatching(/^8 of the last 10 logged groups/) },
  ]);
  for (const groups of [
    { equal: 5, total: 10 },
    { equal: 2, total: 2 },
    { equal: 0, total: 0 },
  ])
    expect(idsOf(run({}, { groups }))).toEqual([]);
});

test("updates that are too large are reported if there is no reference", () => {
  const evidence = run({ "actor/ppo_kl": () => 0.3 });
  expect(findWarnings(evidence)).toMatchObject([{ id: "kl-runaway", title: "Updates move the policy too far" }]);
});

test("serious warnings come first", () => {
  const evidence = run({ "response_length/clip_ratio": () => 0.1, "training/rollout_probs_diff_mean": () => 0.02 });
  expect(idsOf(evidence)).toEqual(["sampler-gap", "truncation"]);
});

test("every key that a warning names is a key of the trainer", () => {
  const keys = new Set([...fieldsOf(ppoSchema.fields)].map(([key]) => key));
  const isKnown = (key: string) => keys.has(key) || [...keys].some((it) => it.startsWith(`${key}.`));
  const evidences = [...Object.values(cases).map(({ sick }) => sick), run({ "actor/ppo_kl": () => 0.3 })];
  const named = evidences
    .flatMap(findWarnings)
    .flatMap(({ text, tries }) => [text, ...tries])
    .flatMap((text) => [...text.matchAll(/`([a-z_]+(?:\.[a-z_]+)+)/g)].map(([, key]) => key!));
  expect(named.length).toBeGreaterThan(15);
  expect(named.filter((key) => !isKnown(key))).toEqual([]);
});
