/**
 * From a distribution to a token: bias, banned tokens and those that a grammar does not allow, penalties, temperature,
 * min-p, top-k and top-p, then one uniform number (the order of vLLM).
 *
 * If the request sets none of these, the engine's own softmax is used as it is, and a draw is one pass over it. A token's
 * log-prob is that of the distribution it was drawn from.
 */
import { hasToken, type TokenSet } from "../text/grammar/grammar.ts";
import { invariant } from "../util/errors.ts";
import type { Sampling, TokenLogprob } from "./request.ts";
import { type Bound, covering, largest, type Row } from "./select.ts";

/** Below this temperature sampling is greedy, as in vLLM. */
const GREEDY_BELOW = 1e-5;

export const isGreedy = ({ temperature = 1 }: Sampling): boolean => temperature < GREEDY_BELOW;

/** The temperature of the distribution whose log-probs are reported. */
export const temperatureOf = (sampling: Sampling): number => (isGreedy(sampling) ? 1 : (sampling.temperature ?? 1));

/**
 * Whether the logits themselves are needed, not only their softmax. Banned tokens and grammars need them: at a low
 * temperature all probabilities but one may be 0, and that one may be of a token that must not be drawn.
 */
export function needsLogits(sampling: Sampling, banned: readonly number[]): boolean {
  const { repetitionPenalty = 1, presencePenalty = 0, frequencyPenalty = 0, logitBias = {}, grammar } = sampling;
  const hasPenalty = repetitionPenalty !== 1 || presencePenalty !== 0 || frequencyPenalty !== 0;
  return hasPenalty || banned.length > 0 || grammar !== undefined || Object.keys(logitBias).length > 0;
}

/** What a draw depends on besides the distribution. */
export type Context = {
  readonly sampling: Sampling;
  readonly ids: readonly number[];
  readonly promptLength: number;
  /** Tokens that must not be drawn now. */
  readonly banned: readonly number[];
  /** With a grammar: the only tokens that may be drawn now. */
  readonly allowed?: Allowed;
};

/** The tokens that a grammar allows, and those that may end the sample now. */
export type Allowed = { readonly tokens: TokenSet; readonly ends: readonly number[] };

/** `policyLogprob` is there with a grammar: the log-prob without it. */
export type Drawn = TokenLogprob & { readonly top: readonly TokenLogprob[]; readonly policyLogprob?: number };

/** Draw a token from `probs`, the softmax at `temperatureOf`; `logits` are needed if `needsLogits`. */
export function draw(probs: Float32Array, logits: Float32Array | null, context: Context, uniform: () => number): Drawn {
  const { sampling, banned, allowed } = context;
  const row = needsLogits(sampling, banned) ? adjusted(logits, context) : probs;
  const drawn = drawFrom(row, sampling, uniform);
  if (allowed === undefined || logits === null) return drawn;
  return { ...drawn, policyLogprob: logprobOf(logits, drawn.id, temperatureOf(sampling)) };
}

function drawFrom(row: Row, sampling: Sampling, uniform: () => number): Drawn {
  const wanted = sampling.topLogprobs ?? 0;
  if (isGreedy(sampling)) return scored(row, likeliest(row), wanted);
  const bound = truncation(row, sampling);
  const kept = bound === null ? row : within(row, bound);
  return scored(kept, inverseCdf(kept, uniform()), wanted);
}

/** The log-prob of a token from the logits: it is finite even if its probability is too small for single precision. */
function logprobOf(logits: Float32Array, id: number, temperature: number): number {
  const peak = logits[likeliest(logits)]!;
  let total = 0;
  for (let i = 0; i < logits.length; i++) total += Math.exp((logits[i]! - peak) / temperature);
  return (logits[id]! - peak) / temperature - Math.log(total);
}

/** The log-prob of a given token, and the likeliest tokens at its position. */
export function scored(row: Row, id: number, wanted: number): Drawn {
  return { id, logprob: Math.log(row[id]!), top: topOf(row, wanted) };
}

/** The softmax of the logits after bias, banned tokens, the grammar and penalties. */
function adjusted(logits: Float32Array | null, context: Context): Float64Array {
  const { sampling, ids, promptLength, banned, allowed } = context;
  invariant(logits !== null, "bias, banned tokens, grammars and penalties need logits");
  const { repetitionPenalty = 1, presencePenalty = 0, frequencyPenalty = 0, logitBias = {} } = sampling;
  const row = Float64Array.from(logits);
  for (const [id, bias] of Object.entries(logitBias)) row[Number(id)]! += bias;
  if (allowed !== undefined) keepAllowed(row, allowed);
  // If every token is banned, the ban is ignored: some token must be drawn.
  if (new Set(banned).size < row.length) for (const id of banned) row[id] = -Infinity;
  if (repetitionPenalty !== 1) {
    for (const id of new Set(ids)) row[id]! *= row[id]! > 0 ? 1 / repetitionPenalty : repetitionPenalty;
  }
  if (presencePenalty !== 0 || frequencyPenalty !== 0) {
    const counts = new Map<number, number>();
    for (const id of ids.slice(promptLength)) counts.set(id, (counts.get(id) ?? 0) + 1);
    for (const [id, count] of counts) row[id]! -= presencePenalty + frequencyPenalty * count;
  }
  const temperature = temperatureOf(sampling);
  const peak = row[likeliest(row)]!;
  let total = 0;
  for (let i = 0; i < row.length; i++) {
    row[i] = Math.exp((row[i]! - peak) / temperature);
    total += row[i]!;
  }
  for (let i = 0; i < row.length; i++) row[i]! /= total;
  return row;
}

function keepAllowed(row: Float64Array, { tokens, ends }: Allowed): void {
  const kept = ends.map((id) => [id, row[id]!] as const);
  for (let id = 0; id < row.length; id++) if (!hasToken(tokens, id)) row[id] = -Infinity;
  for (const [id, logit] of kept) row[id] = logit;
}

function likeliest(row: Row): number {
  let best = 0;
  for (let id = 1; id < row.length; id++) if (row[id]! > row[best]!) best = id;
  return best;
}

/** The first index at which the cumulative probability exceeds `at`. */
function inverseCdf(row: Row, at: number): number {
  let sum = 0;
  for (let id = 0; id < row.length; id++) {
    sum += row[id]!;
    if (sum > at) return id;
  }
  let last = row.length - 1; // rounding can leave the sum a little below 1
  while (last > 0 && row[last] === 0) last--;
  return last;
}

/** The tokens that top-k, top-p and min-p keep; null for all. */
function truncation(row: Row, { topK = 0, topP = 1, minP = 0 }: Sampling): Bound | null {
  const hasTopK = topK > 0 && topK < row.length;
  if (!hasTopK && topP === 1 && minP === 0) return null;
  const floor = minP * row[likeliest(row)]!;
  const least = hasTopK ? largest(row, topK, floor).least : floor;
  if (topP === 1) return { least, ties: Infinity }; // tokens as likely as the last one are kept
  let mass = 0;
  for (let id = 0; id < row.length; id++) if (row[id]! >= least) mass += row[id]!;
  return covering(row, topP * mass, least);
}

/** The distribution over the tokens within the bound, normalized. */
function within(row: Row, bound: Bound): Float64Array {
  const kept = new Float64Array(row.length);
  const mass = forEachWithin(row, bound, (id) => {
    kept[id] = row[id]!;
  });
  for (let id = 0; id < kept.length; id++) kept[id]! /= mass;
  return kept;
}

/** The `count` likeliest tokens, likeliest first. */
function topOf(row: Row, count: number): TokenLogprob[] {
  if (count <= 0) return [];
  const ids: number[] = [];
  forEachWithin(row, largest(row, count), (id) => ids.push(id));
  return ids.sort((a, b) => row[b]! - row[a]! || a - b).map((id) => ({ id, logprob: Math.log(row[id]!) }));
}

/** Visits the tokens within the bound whose probability is not 0, in order of their ids; returns the sum. */
function forEachWithin(row: Row, { least, ties }: Bound, visit: (id: number) => void): number {
  let mass = 0;
  let left = ties;
  for (let id = 0; id < row.length; id++) {
    const p = row[id]!;
    if (p > 0 && (p > least || (p === least && left-- > 0))) {
      visit(id);
      mass += p;
    }
  }
  return mass;
}
