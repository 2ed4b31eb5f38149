/**
 * Warnings from a run's metrics: what was seen, in plain language, and what to try.
 *
 * Pure: metrics in, warnings out. A rule gives no warning while there is too little data, and compares means of several
 * steps, never single steps. Limits are those of docs/metrics.md where it has one; others are next to their rule, with
 * the reason.
 */
import type { Warning } from "./api.ts";
import {
  bestMean,
  type Evidence,
  errorOfDifference,
  firstAbove,
  firstBelow,
  halves,
  lowest,
  MetricHistory,
  mean,
  median,
  reward,
} from "./evidence.ts";

type Finding = Omit<Warning, "id">;
type Rule = (history: MetricHistory) => Finding | null;

export type WarningId =
  | "reward-flat"
  | "reward-falling"
  | "entropy-collapse"
  | "kl-runaway"
  | "equal-groups"
  | "truncation"
  | "length-blow-up"
  | "sampler-gap"
  | "not-finite";

/** The warnings of a run, serious ones first. */
export function findWarnings(evidence: Evidence): Warning[] {
  const history = new MetricHistory(evidence);
  const found = Object.entries(rules).flatMap(([id, rule]) => {
    const finding = rule(history);
    return finding === null ? [] : [{ id, ...finding }];
  });
  return [...found.filter(({ level }) => level === "serious"), ...found.filter(({ level }) => level === "notice")];
}

const actor = "actor_rollout_ref.actor";
const rollout = "actor_rollout_ref.rollout";

const rules: Record<WarningId, Rule> = {
  "reward-flat": (history) => {
    const points = history.points(reward);
    if (points.length < 40 || history.isSolved()) return null;
    const window = points.slice(-Math.max(30, Math.floor(points.length / 3)));
    const [older, newer] = halves(window);
    if (Math.abs(mean(newer) - mean(older)) > 2 * errorOfDifference(older, newer)) return null;
    const first = points.slice(0, window.length);
    const hasRisen = mean(window) - mean(first) > 2 * errorOfDifference(first, window);
    return {
      level: hasRisen ? "notice" : "serious",
      title: hasRisen ? "The reward no longer rises" : "The reward does not rise",
      text: `Over the last ${window.length} steps the mean reward went from ${show(mean(older))} to ${show(mean(newer))}, which is within its noise.`,
      tries: [
        "MetricHistory at the rollouts: does the reward tell good answers from bad ones, and does any answer score?",
        `If all answers fail, use easier prompts, a stronger start (sft first), or more tries: \`${rollout}.n\`.`,
        `If some score and nothing moves, raise \`${actor}.optim.lr\` two- to fivefold.`,
        "If it has learnt and now stands still, harder prompts carry it further, or it is done.",
      ],
      metrics: [reward],
      since: window[0]!.step,
    };
  },

  "reward-falling": (history) => {
    const points = history.points(reward);
    if (points.length < 20) return null;
    const recent = points.slice(-10);
    const best = bestMean(points, 10);
    const drop = best.value - mean(recent);
    const size = best.value - lowest(points);
    // A third of the whole gain is more than the noise of a mean of ten steps.
    if (drop <= size / 3 || drop < 3 * errorOfDifference(best.points, recent)) return null;
    return {
      level: "serious",
      title: "The reward has fallen",
      text: `The mean reward of ten steps was ${show(best.value)} at step ${best.step} and is ${show(mean(recent))} now.`,
      tries: [
        "Go back: `trainer.resume_mode=resume_path` with a checkpoint from before the fall.",
        `Lower \`${actor}.optim.lr\`, or hold the policy near its start: \`${actor}.use_kl_loss=true\`.`,
        "See whether KL, entropy or lengths changed at the same step.",
      ],
      metrics: [reward],
      since: best.step,
    };
  },

  "entropy-collapse": (history) => {
    const points = history.points("actor/entropy");
    if (points.length < 10 || history.isSolved()) return null;
    const start = mean(points.slice(0, 5));
    const now = mean(points.slice(-5));
    if (now > start / 10) return null; // a policy that still learns keeps more than a tenth of its first entropy
    return {
      level: "serious",
      title: "The policy has stopped exploring",
      text: `Entropy fell from ${show(start)} to ${show(now)} nats per token, and the task is not solved: answers to a prompt become the same.`,
      tries: [
        `Let unlikely tokens grow: \`${actor}.clip_ratio_high=0.28\`.`,
        `Reward variety: \`${actor}.entropy_coeff=0.001\`.`,
        `Lower \`${actor}.optim.lr\`, or sample at \`${rollout}.temperature=1\`.`,
      ],
      metrics: ["actor/entropy"],
      since: firstBelow(points, start / 10),
    };
  },

  "kl-runaway": (history) => klFarFromReference(history) ?? klOfUpdates(history),

  "equal-groups": (history) => {
    const groups = history.evidence.groups;
    const max = history.points("critic/advantages/max").slice(-10);
    const min = history.points("critic/advantages/min").slice(-10);
    const idle = max.filter(({ value }, i) => Math.abs(value) < 1e-9 && Math.abs(min[i]?.value ?? 0) < 1e-9);
    const isIdle = max.length >= 5 && idle.length >= max.length / 2;
    const isMostlyEqual = groups !== undefined && groups.total >= 4 && groups.equal >= 0.7 * groups.total;
    if (!isIdle && !isMostlyEqual) return null;
    return {
      level: isIdle && !history.isSolved() ? "serious" : "notice",
      title: "Answers of a group score alike",
      text: isIdle
        ? `In ${idle.length} of the last ${max.length} steps every advantage is 0: there is nothing to learn from.`
        : `${groups?.equal} of the last ${groups?.total} logged groups have equal scores; they do not change the policy.`,
      tries: history.isSolved()
        ? ["The reward is at its top: the task is solved. Use harder prompts, or stop here."]
        : [
            "Drop such groups and sample others: `algorithm.filter_groups.enable=true`.",
            `More answers per prompt (\`${rollout}.n\`) and \`${rollout}.temperature=1\` make differences likelier.`,
            "Choose prompts that are neither always nor never solved, or a reward with more steps than 0 and 1.",
          ],
      metrics: ["critic/advantages/max", "critic/advantages/min"],
      since: idle[0]?.step ?? history.lastStep,
    };
  },

  truncation: (history) => {
    const recent = history.points("response_length/clip_ratio").slice(-10);
    if (recent.length < 3 || mean(recent) < 0.05) return null;
    return {
      level: mean(recent) >= 0.3 ? "serious" : "notice",
      title: "Responses are cut off",
      text: `${percent(mean(recent))} of the responses of the last ${recent.length} steps reached \`data.max_response_length\`; what they would have said next is not scored.`,
      tries: [
        "Raise `data.max_response_length`.",
        "See in the rollouts whether answers ramble or never end: the end token may be missing from the data or the template.",
        "Make length cost something: `reward_model.reward_manager=dapo` with its overlong buffer.",
      ],
      metrics: ["response_length/clip_ratio"],
      since: recent[0]!.step,
    };
  },

  "length-blow-up": (history) => {
    const lengths = history.points("response_length/mean");
    const rewards = history.points(reward);
    if (lengths.length < 20 || rewards.length < 20) return null;
    const start = mean(lengths.slice(0, 5));
    const now = mean(lengths.slice(-5));
    const window = Math.max(10, Math.floor(lengths.length / 3));
    const [shorter, longer] = halves(lengths.slice(-window));
    const [before, after] = halves(rewards.slice(-window));
    const isRising = mean(longer) > 1.1 * mean(shorter);
    const pays = mean(after) - mean(before) > 2 * errorOfDifference(before, after);
    if (now < 2 * start || !isRising || pays) return null;
    return {
      level: "notice",
      title: "Responses grow and the reward does not",
      text: `The mean response went from ${show(start)} to ${show(now)} tokens; over the last ${window} steps the reward stayed near ${show(mean(after))}.`,
      tries: [
        "Read the longest responses: repetition and padding are the usual reasons.",
        `Average the loss over tokens: \`${actor}.loss_agg_mode=token-mean\`.`,
        "Make length cost something: `reward_model.reward_manager=dapo` with its overlong buffer.",
      ],
      metrics: ["response_length/mean", reward],
      since: lengths.at(-window)!.step,
    };
  },

  "sampler-gap": (history) => {
    const name = "training/rollout_probs_diff_mean";
    const recent = history.points(name).slice(-5);
    if (recent.length === 0 || mean(recent) < 0.005) return null;
    return {
      level: mean(recent) >= 0.01 ? "serious" : "notice",
      title: "Sampler and trainer disagree",
      text: `Sampled tokens have probabilities that differ by ${show(mean(recent))} on average from the trainer's; below 0.005 is healthy, above 0.01 is a problem of precision.`,
      tries: [
        "Let the sampler compute in the trainer's precision; on the embedded engine both are one.",
        `Sample from the whole distribution: \`${rollout}.top_p=1\` and \`${rollout}.top_k=-1\`.`,
        "Correct for it: `algorithm.rollout_correction` (docs/rollout-correction.md).",
      ],
      metrics: [name],
      since: recent[0]!.step,
    };
  },

  "not-finite": (history) => {
    const since = history.stepBack(20);
    const names = history.evidence.notFiniteSince(since);
    if (names.length === 0) return null;
    const shown = names.slice(0, 3).map((name) => `\`${name}\``);
    return {
      level: "serious",
      title: "Some numbers are not finite",
      text: `Since step ${since}, ${shown.join(", ")}${names.length > 3 ? ` and ${names.length - 3} more` : ""} had no finite value; an update without a finite gradient changes no weight.`,
      tries: [
        `Lower \`${actor}.optim.lr\`, and see that \`${actor}.grad_clip\` is about 1.`,
        "See in the rollouts of these steps whether scores are numbers that make sense.",
      ],
      metrics: names,
      since,
    };
  },
};

/** Mean KL per token to the reference: 1 nat is a different model; five times the earlier value and growing is close to that. */
function klFarFromReference(history: MetricHistory): Finding | null {
  for (const name of ["actor/kl_loss", "actor/reward_kl_penalty"]) {
    const points = history.points(name);
    if (points.length < 10) continue;
    const now = mean(points.slice(-5));
    const [earlier] = halves(points);
    const isFar = now > 1;
    if (!isFar && !(now > 0.2 && now > 5 * median(earlier))) continue;
    return {
      level: isFar ? "serious" : "notice",
      title: "The policy runs away from the reference",
      text: `KL to the reference is ${show(now)} nats per token; in the first half of the run it was ${show(median(earlier))}.`,
      tries: [
        name === "actor/kl_loss"
          ? `Raise \`${actor}.kl_loss_coef\`, three- to tenfold.`
          : "Raise `algorithm.kl_ctrl.kl_coef`, or let it adapt: `algorithm.kl_ctrl.type=adaptive`.",
        `Lower \`${actor}.optim.lr\`.`,
        "If the reward still rises and answers read well, the distance may be what the task needs.",
      ],
      metrics: [name],
      since: firstAbove(points, isFar ? 1 : 0.2),
    };
  }
  return null;
}

/** Mean log-ratio of one update: a tenth of a nat is far more than clipping at 0.2 is meant for. */
function klOfUpdates(history: MetricHistory): Finding | null {
  const name = "actor/ppo_kl";
  const recent = history.points(name).slice(-5);
  const size = Math.abs(mean(recent));
  if (recent.length < 5 || size < 0.1) return null;
  return {
    level: "serious",
    title: "Updates move the policy too far",
    text: `Within a step the policy moves ${show(size)} nats per token away from the one that sampled; a few hundredths are usual.`,
    tries: [
      `Lower \`${actor}.optim.lr\`, or take fewer passes: \`${actor}.ppo_epochs=1\`.`,
      `Use larger mini-batches: \`${actor}.ppo_mini_batch_size\`.`,
    ],
    metrics: [name],
    since: recent[0]!.step,
  };
}

const show = (value: number): string => String(Number(value.toPrecision(3)));
const percent = (share: number): string => `${Math.round(100 * share)}%`;
