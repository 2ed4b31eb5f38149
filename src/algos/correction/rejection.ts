/**
 * Rejection: tokens or whole rows on which the two policies differ too much are taken out of the response mask.
 *
 * verl 0.7 bounds the ratio train / rollout of a token, of a row (`sequence`) or of a row's average token (`geometric`),
 * and its veto takes out rows that have one token whose ratio is next to nothing. verl 0.9 bounds estimators of the
 * divergence (k1 = -l, k2 = l^2 / 2, k3 = e^l - 1 - l of the log-ratio l; J. Schulman, "Approximating KL divergence"),
 * of tokens or summed, averaged or maximised over a row; several may be asked for, and a token stays if all let it.
 * Note that k1 is ln(rollout / train): its bounds are on the inverse of 0.7's ratio, which matters when they are not
 * each other's inverse. Names of both versions work side by side.
 *
 * Departures from verl: rows without a token that counts are left out of means over rows. Importance weights stay as
 * they are, as in verl: what is rejected is out because its mask is 0.
 */

import type { Metrics } from "../metrics/metrics.ts";
import { weightMetrics, within } from "./importance.ts";
import {
  type Bounds,
  boundedExp,
  clamp,
  deviationOf,
  type LogRatios,
  mapped,
  maxOf,
  meanOf,
  minOf,
  overRows,
  type Reduction,
  SAFETY_BOUND,
  sharesOutside,
  spread,
} from "./log-ratios.ts";

/** verl 0.7's levels: which ratio is bounded. */
export const ratioLevels = ["token", "sequence", "geometric"] as const;
export type RatioLevel = (typeof ratioLevels)[number];

/** A divergence of the two policies on one token, from its log-ratio. */
type Divergence = (logRatio: number) => number;
const k1: Divergence = (l) => 0 - l; // not -l, which is -0 where the policies agree
const k2: Divergence = (l) => (l * l) / 2;
const k3: Divergence = (l) => Math.max(Math.exp(l) - 1 - l, 0); // below 0 by rounding only

/** What a 0.9 option compares with its bounds: a divergence of each token, or of the tokens of each row together. */
type Criterion = { readonly divergence: Divergence; readonly reduction: Reduction | null };

/** verl 0.9's options. */
export const criteria = {
  token_k1: { divergence: k1, reduction: null },
  token_k2: { divergence: k2, reduction: null },
  token_k3: { divergence: k3, reduction: null },
  seq_sum_k1: { divergence: k1, reduction: "sum" },
  seq_sum_k2: { divergence: k2, reduction: "sum" },
  seq_sum_k3: { divergence: k3, reduction: "sum" },
  seq_mean_k1: { divergence: k1, reduction: "mean" },
  seq_mean_k2: { divergence: k2, reduction: "mean" },
  seq_mean_k3: { divergence: k3, reduction: "mean" },
  seq_max_k2: { divergence: k2, reduction: "max" },
  seq_max_k3: { divergence: k3, reduction: "max" },
} as const satisfies Record<string, Criterion>;
export type DivergenceOption = keyof typeof criteria;

/** Whether an option's divergence has a sign, and so a lower bound; both bounds are then given as ratios. */
export const isSigned = (option: DivergenceOption): boolean => criteria[option].divergence === k1;

export type Rejection =
  | { readonly kind: "ratio"; readonly level: RatioLevel; readonly bounds: Bounds }
  /** In the units of the divergence; `lower` is 0 where it has no sign. */
  | { readonly kind: "divergence"; readonly option: DivergenceOption; readonly bounds: Bounds };

/** Which of the tokens that count stay (1) or go (0), and what to log about it. */
export type Verdict = { readonly keeps: Uint8Array; readonly metrics: Metrics };

/** Keep the tokens that every rejection lets stay. */
export function reject(ratios: LogRatios, rejections: readonly Rejection[]): Verdict {
  const verdicts = rejections.map((rejection) =>
    rejection.kind === "ratio" ? rejectByRatio(ratios, rejection) : rejectByDivergence(ratios, rejection),
  );
  const keeps = keptByAll(ratios, verdicts);
  const { tokens, rows } = rejectedShares(ratios, keeps);
  return {
    keeps,
    metrics: {
      ...Object.assign({}, ...verdicts.map(({ metrics }) => metrics)),
      rollout_rs_masked_fraction: tokens,
      rollout_rs_seq_masked_fraction: rows,
    },
  };
}

/** The tokens that no verdict rejects. */
export function keptByAll(ratios: LogRatios, verdicts: readonly Verdict[]): Uint8Array {
  const all = new Uint8Array(ratios.values.length).fill(1);
  for (const { keeps } of verdicts) for (let k = 0; k < all.length; k++) all[k]! &= keeps[k]!;
  return all;
}

function rejectByRatio(ratios: LogRatios, { level, bounds }: Rejection & { kind: "ratio" }): Verdict {
  const rowLogs = level === "token" ? null : overRows(ratios, ratios.values, level === "sequence" ? "sum" : "mean");
  const raw = rowLogs === null ? mapped(ratios.values, boundedExp) : spread(ratios, rowLogs.map(boundedExp));
  const weighing = { rowLogs, raw, shown: raw, measured: within(raw, bounds), bounds };
  return { keeps: keptWithin(raw, bounds), metrics: weightMetrics("rollout_rs", ratios, weighing) };
}

function rejectByDivergence(ratios: LogRatios, { option, bounds }: Rejection & { kind: "divergence" }): Verdict {
  const { divergence, reduction } = criteria[option];
  const perToken = mapped(ratios.values, (l) => divergence(clamp(l, -SAFETY_BOUND, SAFETY_BOUND)));
  const perRow = overRows(ratios, perToken, reduction ?? "mean");
  const judged = reduction === null ? perToken : perRow;
  const everywhere = reduction === null ? perToken : spread(ratios, perRow);

  const keeps = keptWithin(everywhere, bounds);
  const outside = sharesOutside(judged, bounds);
  const rowsOutside = sharesOutside(perRow, bounds);
  const rejected = rejectedShares(ratios, keeps);
  const prefix = `rollout_rs_${option}`;
  return {
    keeps,
    metrics: {
      [`${prefix}_mean`]: meanOf(everywhere),
      [`${prefix}_max`]: maxOf(judged),
      [`${prefix}_min`]: minOf(judged),
      [`${prefix}_fraction_high`]: outside.high,
      [`${prefix}_fraction_low`]: outside.low,
      [`${prefix}_std`]: deviationOf(within(everywhere, bounds)),
      [`${prefix}_seq_mean`]: meanOf(perRow),
      [`${prefix}_seq_std`]: deviationOf(perRow, { unbiased: true }),
      [`${prefix}_seq_max`]: maxOf(perRow),
      [`${prefix}_seq_min`]: minOf(perRow),
      [`${prefix}_seq_max_deviation`]: maxOf(perRow.map(Math.abs)),
      [`${prefix}_seq_fraction_high`]: rowsOutside.high,
      ...(isSigned(option) ? { [`${prefix}_seq_fraction_low`]: rowsOutside.low } : {}),
      [`${prefix}_masked_fraction`]: rejected.tokens,
      [`${prefix}_seq_masked_fraction`]: rejected.rows,
    },
  };
}

/** Take out every row with a token whose ratio train / rollout is below `threshold`; null takes out none. */
export function veto(ratios: LogRatios, threshold: number | null): Verdict {
  const keeps = new Uint8Array(ratios.values.length).fill(1);
  if (threshold === null) {
    return { keeps, metrics: { rollout_is_veto_fraction: 0, rollout_is_catastrophic_token_fraction: 0 } };
  }
  const isAcceptable = keptWithin(ratios.values, { lower: Math.log(threshold), upper: Number.POSITIVE_INFINITY });
  const { tokens, rows } = rejectedShares(ratios, isAcceptable);
  for (let i = 0; i < ratios.rows.length; i++) {
    const [start, end] = [ratios.starts[i]!, ratios.starts[i + 1]!];
    if (isAcceptable.subarray(start, end).includes(0)) keeps.fill(0, start, end);
  }
  return { keeps, metrics: { rollout_is_veto_fraction: rows, rollout_is_catastrophic_token_fraction: tokens } };
}

function keptWithin(values: Float64Array, { lower, upper }: Bounds): Uint8Array {
  const keeps = new Uint8Array(values.length);
  for (let k = 0; k < values.length; k++) keeps[k] = values[k]! >= lower && values[k]! <= upper ? 1 : 0;
  return keeps;
}

/** The share of the tokens that go, and the share of the rows that lose at least one. */
function rejectedShares({ starts, rows }: LogRatios, keeps: Uint8Array): { tokens: number; rows: number } {
  let [tokens, hit] = [0, 0];
  for (let i = 0; i < rows.length; i++) {
    const before = tokens;
    for (let k = starts[i]!; k < starts[i + 1]!; k++) if (keeps[k] === 0) tokens++;
    if (tokens > before) hit++;
  }
  return { tokens: tokens / keeps.length, rows: hit / rows.length };
}
