/**
 * Which chart shows which metrics, in the order of their importance. Pure.
 *
 * A metric that no chart has is found by search. When runs are compared, every chart shows one metric, and each run
 * has its own colour.
 */

export type Series = {
  readonly name: string;
  readonly label: string;
  /** A bound such as max or min: thin, and not smoothed. */
  readonly isQuiet: boolean;
};

export type ChartSpec = {
  readonly section: string;
  readonly title: string;
  readonly series: readonly Series[];
};

/** One or several metrics by pattern, and their label in the chart; `$1` stands for the pattern's first group. */
type Entry = readonly [pattern: RegExp, label: string, isQuiet?: "quiet"];
type Plan = {
  readonly section: string;
  readonly title: string;
  readonly entries: readonly Entry[];
  /** The chart is shown only if the run has this metric. */
  readonly needs?: string;
};

const plans: readonly Plan[] = [
  {
    section: "Learning",
    title: "Reward",
    entries: [
      [/^critic\/score\/mean$/, "mean"],
      [/^critic\/score\/max$/, "max", "quiet"],
      [/^critic\/score\/min$/, "min", "quiet"],
    ],
  },
  {
    section: "Learning",
    title: "Reward after KL penalty",
    entries: [[/^critic\/rewards\/mean$/, "mean"]],
    needs: "actor/reward_kl_penalty",
  },
  {
    section: "Learning",
    title: "Validation accuracy",
    entries: [[/^val-core\/(.+\/acc)\/mean@\d+$/, "$1"]],
  },
  {
    section: "Learning",
    title: "Validation score",
    entries: [[/^val-core\/(.+)\/(?<!acc\/)mean@\d+$/, "$1"]],
  },
  {
    section: "Learning",
    title: "Accuracy",
    entries: [
      [/^train\/accuracy$/, "train"],
      [/^val\/accuracy$/, "validation"],
    ],
  },
  {
    section: "Learning",
    title: "Loss",
    entries: [
      [/^train\/loss$/, "train"],
      [/^val\/loss$/, "validation"],
    ],
  },
  {
    section: "Policy",
    title: "KL to the reference",
    entries: [
      [/^actor\/kl_loss$/, "in the loss"],
      [/^actor\/reward_kl_penalty$/, "in the reward"],
    ],
  },
  { section: "Policy", title: "KL of the updates", entries: [[/^actor\/ppo_kl$/, "to the sampler"]] },
  { section: "Policy", title: "Entropy", entries: [[/^actor\/entropy$/, "per token"]] },
  {
    section: "Policy",
    title: "Clip fractions",
    entries: [
      [/^actor\/pg_clipfrac$/, "policy"],
      [/^actor\/pg_clipfrac_lower$/, "policy, lower"],
      [/^critic\/vf_clipfrac$/, "value"],
    ],
  },
  {
    section: "Policy",
    title: "Policy loss",
    entries: [[/^actor\/pg_loss$/, "loss"]],
  },
  {
    section: "Policy",
    title: "Gradient norm",
    entries: [
      [/^actor\/grad_norm$/, "actor"],
      [/^critic\/grad_norm$/, "critic"],
      [/^train\/grad_norm$/, "model"],
    ],
  },
  {
    section: "Policy",
    title: "Learning rate",
    entries: [
      [/^actor\/lr$/, "actor"],
      [/^critic\/lr$/, "critic"],
      [/^train\/lr$/, "model"],
    ],
  },
  { section: "Policy", title: "Critic: explained variance", entries: [[/^critic\/vf_explained_var$/, "share"]] },
  { section: "Policy", title: "Critic: value loss", entries: [[/^critic\/vf_loss$/, "loss"]] },
  {
    section: "Responses",
    title: "Response length",
    entries: [
      [/^response_length\/mean$/, "mean"],
      [/^response_length\/max$/, "max", "quiet"],
      [/^response_length\/min$/, "min", "quiet"],
    ],
  },
  { section: "Responses", title: "Responses cut off", entries: [[/^response_length\/clip_ratio$/, "share"]] },
  { section: "Responses", title: "Prompt length", entries: [[/^prompt_length\/mean$/, "mean"]] },
  {
    section: "Responses",
    title: "Sampler and trainer apart",
    entries: [
      [/^training\/rollout_probs_diff_mean$/, "mean"],
      [/^training\/rollout_probs_diff_max$/, "max", "quiet"],
    ],
  },
  { section: "Speed and memory", title: "Throughput", entries: [[/^perf\/throughput$/, "per second"]] },
  { section: "Speed and memory", title: "Time per step", entries: [[/^timing_s\/step$/, "step"]] },
  {
    section: "Speed and memory",
    title: "Memory",
    entries: [
      [/^perf\/max_memory_allocated_gb$/, "the run, most so far"],
      [/^perf\/cpu_memory_used_gb$/, "the machine, all programs"],
    ],
  },
];

/** The charts of a run with these metrics; charts without any are left out. */
export function chartsOf(names: readonly string[]): ChartSpec[] {
  return plans
    .filter(({ needs }) => needs === undefined || names.includes(needs))
    .map(({ section, title, entries }) => ({ section, title, series: entries.flatMap((it) => seriesOf(it, names)) }))
    .filter(({ series }) => series.some(({ isQuiet }) => !isQuiet));
}

function seriesOf([pattern, label, isQuiet]: Entry, names: readonly string[]): Series[] {
  return names
    .filter((name) => pattern.test(name))
    .sort()
    .map((name) => ({ name, label: name.replace(pattern, label), isQuiet: isQuiet === "quiet" }));
}

/** Charts of one metric each, so that every run has its own colour. */
export function splitCharts(charts: readonly ChartSpec[]): ChartSpec[] {
  return charts.flatMap(({ section, title, series }) => {
    const loud = series.filter(({ isQuiet }) => !isQuiet);
    return loud.map((it) => ({ section, title: loud.length > 1 ? `${title}: ${it.label}` : title, series: [it] }));
  });
}

/** The metrics whose names contain all the words, each as a chart. */
export function searchCharts(names: readonly string[], text: string): ChartSpec[] {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  return names
    .filter((name) => words.every((word) => name.toLowerCase().includes(word)))
    .sort()
    .map((name) => ({ section: "Found", title: name, series: [{ name, label: lastPart(name), isQuiet: false }] }));
}

/** Metrics that no chart shows. */
export function otherNames(names: readonly string[], charts: readonly ChartSpec[]): string[] {
  const shown = new Set(charts.flatMap(({ series }) => series.map(({ name }) => name)));
  return names.filter((name) => !shown.has(name)).sort();
}

const lastPart = (name: string): string => name.slice(name.lastIndexOf("/") + 1);
