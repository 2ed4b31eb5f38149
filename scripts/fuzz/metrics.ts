/** Random inputs of metrics and of balancing. */
import type { Random } from "../../src/util/random.ts";
import { chance, exact, maskOf, type Numbers, number, pick, rewardsOf, rowsLike, times } from "./dice.ts";
import type { Generator } from "./numbers.ts";

/** Prompt and response of each row at one width: 1 where there is a token. */
function attentionOf(random: Random, mask: Numbers): Numbers {
  const promptWidth = 1 + random.int(5);
  return mask.map((row) => {
    const length = row.lastIndexOf(1) + 1;
    const prompt = 1 + random.int(promptWidth);
    return [...times(promptWidth, (t) => Number(t >= promptWidth - prompt)), ...row.map((_, t) => Number(t < length))];
  });
}

const seconds = (random: Random) =>
  Object.fromEntries(
    ["gen", "ref", "values", "adv", "update_critic", "update_actor", "old_log_prob", "reward", "step"]
      .filter((name) => name === "step" || chance(random, 0.7))
      .map((name) => [name, 0.25 + random.int(64) / 8]),
  );

const metrics: Generator[] = [
  {
    topic: "metrics",
    function: "compute_data_metrics",
    share: 5,
    inputs: (random) => {
      const response_mask = maskOf(random);
      const useCritic = chance(random, 0.5);
      const perToken = () => rowsLike(response_mask, () => number(random));
      const count = response_mask.length;
      return {
        token_level_scores: rewardsOf(random, response_mask),
        token_level_rewards: rewardsOf(random, response_mask),
        advantages: perToken(),
        returns: perToken(),
        ...(useCritic ? { values: perToken() } : {}),
        responses: rowsLike(response_mask, () => random.int(50)),
        attention_mask: attentionOf(random, response_mask),
        response_mask,
        use_critic: useCritic,
        ...(chance(random, 0.3) ? { __num_turns__: times(count, () => 2 + random.int(4)) } : {}),
        ...(chance(random, 0.3) ? { tool_call_counts: times(count, () => random.int(4)) } : {}),
      };
    },
  },
  {
    topic: "metrics",
    function: "compute_timing_metrics",
    inputs: (random) => {
      const mask = maskOf(random);
      return {
        attention_mask: attentionOf(random, mask),
        response_length: mask[0]!.length,
        timing_raw: seconds(random),
      };
    },
  },
  {
    topic: "metrics",
    function: "compute_throughout_metrics",
    inputs: (random) => ({
      global_token_num: times(1 + random.int(8), () => random.int(500)),
      timing_raw: seconds(random),
      n_gpus: 1 + random.int(4),
    }),
  },
  {
    topic: "metrics",
    function: "bootstrap_metric",
    inputs: (random) => ({
      data: times(1 + random.int(6), () => number(random)),
      subset_size: 1 + random.int(4),
      reduce_fns: ["mean", "max", "min"],
      n_bootstrap: 50,
      seed: random.int(100),
    }),
  },
  {
    topic: "metrics",
    function: "calc_maj_val",
    inputs: (random) => ({
      data: times(1 + random.int(6), () => ({ pred: pick(random, ["A", "B", "", "c"]), val: number(random) })),
      vote_key: "pred",
      val_key: "val",
    }),
  },
  { topic: "metrics", function: "process_validation_metrics", inputs: validationInputs },
  {
    topic: "metrics",
    function: "verl.utils.metric.reduce_metrics",
    inputs: (random) => {
      const names = ["loss", "critic/score/max", "a/min", "maximum", "x/minmax_diff", "b_max_c", "admin", "Max"];
      const kept = names.filter(() => chance(random, 0.6));
      return {
        metrics: Object.fromEntries(kept.map((name) => [name, times(1 + random.int(4), () => number(random))])),
      };
    },
  },
];

function validationInputs(random: Random) {
  const prompts = times(1 + random.int(4), (i) => ({
    uid: `u${i}`,
    source: pick(random, ["openai/gsm8k", "math"]),
    answers: pick(random, [1, 2, 3, 4, 5]),
  }));
  const rows = prompts.flatMap(({ uid, source, answers }) => times(answers, () => ({ uid, source })));
  const preds = chance(random, 0.5) ? { pred: rows.map(() => pick(random, ["1", "2", "", "x"])) } : {};
  return {
    data_sources: rows.map(({ source }) => source),
    sample_uids: rows.map(({ uid }) => uid),
    infos_dict: {
      reward: rows.map(() => exact(random.uniform())),
      acc: rows.map(() => pick(random, [0, 1])),
      ...preds,
    },
    seed: random.int(100),
  };
}

const weightsOf = (random: Random, count: number) => {
  const top = pick(random, [1, 3, 100, 10000]);
  return times(count, () => 1 + random.int(top));
};

const balancing: Generator[] = [
  ...["karmarkar_karp", "get_seqlen_balanced_partitions"].map(
    (name): Generator => ({
      topic: "seqlen_balancing",
      function: name,
      inputs: (random) => {
        const parts = 1 + random.int(4);
        const equal = chance(random, 0.5);
        const count = equal ? parts * (1 + random.int(5)) : parts + random.int(12);
        return { seqlen_list: weightsOf(random, count), k_partitions: parts, equal_size: equal };
      },
    }),
  ),
  {
    topic: "seqlen_balancing",
    function: "log_seqlen_unbalance",
    inputs: (random) => {
      const parts = 1 + random.int(4);
      const count = parts * (1 + random.int(4));
      const order = [...random.permutation(count)];
      const partitions = times(parts, (part) => order.filter((_, i) => i % parts === part));
      return { seqlen_list: weightsOf(random, count), partitions, prefix: "global_seqlen" };
    },
  },
  {
    topic: "seqlen_balancing",
    function: "calculate_workload",
    inputs: (random) => ({ seqlen_list: weightsOf(random, 1 + random.int(8)) }),
  },
];

export const metricGenerators: readonly Generator[] = [...metrics, ...balancing];
