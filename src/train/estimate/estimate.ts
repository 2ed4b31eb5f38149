/**
 * What a step of training will cost, worked out before anything is trained: memory per role, and seconds per phase.
 *
 * A step is described by its passes (`step-plan.ts`); what a unit of work takes on this machine is measured by
 * `probe.ts`. Here is only arithmetic. What a token costs is stated by the model's parts (`models/parts/`), whose
 * numbers for memory were fitted to the peak memory of small models of each family; a pass is judged by its
 * floating-point operations, so that a probe on few tokens speaks for many. Both are estimates, and are called so
 * wherever they are shown.
 */
import type { HeadName, MicroBatching, TokenRow } from "../../engine/contract.ts";
import { tokensInGroup } from "../../engine/embedded/branches.ts";
import { cacheBytesPerToken } from "../../engine/embedded/kv-cache.ts";
import { partsFor } from "../../engine/embedded/layout.ts";
import { cut } from "../../engine/embedded/micro-batches.ts";
import { type Head, type ModelConfig, parameterSpecs } from "../../models/config.ts";
import { modelCost } from "../../models/cost.ts";
import { elementCount } from "../../models/safetensors.ts";

/** A model in its role. */
export type Role = { readonly name: string; readonly config: ModelConfig; readonly isTrained: boolean };

/** A pass of a model over a batch. `batches` are examples of that batch; a step makes the pass `times` times. */
export type Pass = {
  /** verl's name of the phase. */
  readonly timer: string;
  readonly role: string;
  readonly kind: "forward" | "train";
  readonly batches: readonly (readonly TokenRow[])[];
  readonly times: number;
  readonly micro: MicroBatching;
};

/** The sampling of a step, by the role `actor`. */
export type Sampling = {
  readonly timer: string;
  readonly promptTokens: readonly number[];
  /** Responses per prompt, each of `responseTokens`. */
  readonly n: number;
  readonly responseTokens: number;
  readonly maxSequences: number;
};

/** Everything that a step does with models. */
export type StepPlan = {
  readonly roles: readonly Role[];
  readonly passes: readonly Pass[];
  readonly sampling: readonly Sampling[];
};

/** The memory of one role, in bytes. */
export type RoleMemory = {
  readonly weights: number;
  readonly gradients: number;
  readonly optimizer: number;
  readonly activations: number;
  /** Keys and values of the tokens that are sampled. */
  readonly cache: number;
};

/** The memory of the program before a model is opened: Node, onnxruntime, a tokenizer. */
export const PROGRAM_BYTES = 190 * 2 ** 20;

/** The number of a model's parameters. */
export function parameterCount(config: ModelConfig): number {
  return parameterSpecs(config).reduce((total, { shape }) => total + elementCount(shape), 0);
}

/** The memory that a role needs. */
export function roleMemory(plan: StepPlan, { name, config, isTrained }: Role): RoleMemory {
  const weights = 4 * parameterCount(config);
  const passes = plan.passes.filter((pass) => pass.role === name);
  const sampling = name === SAMPLER ? plan.sampling : [];
  return {
    weights,
    gradients: isTrained ? weights : 0,
    optimizer: isTrained ? 2 * weights : 0,
    activations: passes.reduce((total, pass) => total + activations(config, pass), 0),
    cache: Math.max(0, ...sampling.map((one) => cacheBytes(config, one))),
  };
}

/** The role that samples. */
const SAMPLER = "actor";

/** The sum of a role's memory. */
export function totalOf({ weights, gradients, optimizer, activations, cache }: RoleMemory): number {
  return weights + gradients + optimizer + activations + cache;
}

/**
 * Each compiled program keeps the memory of its largest micro-batch. There are separate programs for the first
 * micro-batch of an update and for those that add to its gradient, for short and for long sequences, and for sequences
 * with a common prefix.
 */
function activations(config: ModelConfig, pass: Pass): number {
  const programs = new Map<string, number>();
  for (const batch of pass.batches) {
    for (const [index, block] of blocksOf(config, batch, pass.micro).entries()) {
      const program = `${pass.kind === "train" && index > 0} ${block.isShared} ${isLong(block.time)}`;
      programs.set(program, Math.max(programs.get(program) ?? 0, blockBytes(config, pass.kind, block)));
    }
  }
  return [...programs.values()].reduce((a, b) => a + b, 0);
}

/** A micro-batch: `time` is its longest sequence, `tokens` are computed, and the head is computed for `counted` of them. */
type Block = {
  readonly tokens: number;
  readonly counted: number;
  readonly time: number;
  /** Whether a common prefix of several sequences is computed once. */
  readonly isShared: boolean;
};

/** The micro-batches that the engine cuts a batch into. */
export function blocksOf(config: ModelConfig, batch: readonly TokenRow[], micro: MicroBatching): Block[] {
  const ofConfig = known.get(config) ?? new WeakMap<readonly TokenRow[], Map<string, Block[]>>();
  const ofBatch = ofConfig.get(batch) ?? new Map<string, Block[]>();
  const key = JSON.stringify(micro);
  const blocks = ofBatch.get(key) ?? makeBlocks(config, batch, micro);
  known.set(config, ofConfig.set(batch, ofBatch.set(key, blocks)));
  return blocks;
}

/** Passes share batches, and finding common prefixes in a large batch takes a while. */
const known = new WeakMap<ModelConfig, WeakMap<readonly TokenRow[], Map<string, Block[]>>>();

function makeBlocks(config: ModelConfig, batch: readonly TokenRow[], micro: MicroBatching): Block[] {
  return cut(batch, micro, { heads: [headNames[config.head]], config }).map(({ indices, groups }) => {
    const time = Math.max(...indices.map((index) => batch[index]!.ids.length));
    const tokens =
      groups === null ? indices.length * time : groups.reduce((total, group) => total + tokensInGroup(group), 0);
    const counted = indices.reduce((total, index) => total + countedIn(batch[index]!), 0);
    return { tokens, counted, time, isShared: groups !== null };
  });
}

/** What a model computes for a token, by its head. */
export const headNames: Readonly<Record<Head, HeadName>> = { lm: "logprobs", value: "values", score: "scores" };

function countedIn({ ids, mask }: TokenRow): number {
  let count = 0;
  for (let t = 0; t < ids.length; t++) if (mask[t]) count++;
  return count;
}

/** Attention over a long sequence is computed in parts; the later parts are larger. */
const isLong = (time: number): boolean => partsFor(time).parts > 1;

/** The activations of a micro-batch: in training of all layers, else of one layer at a time. */
function blockBytes(config: ModelConfig, kind: Pass["kind"], { tokens, counted, time }: Block): number {
  const { layers, largestLayer, head } = modelCost(config, { use: kind, length: time, keys: time });
  const perToken = kind === "train" ? layers : largestLayer;
  return tokens * perToken.activationBytes + counted * head.activationBytes;
}

/** The sequences that are decoded together, each as long as the longest, and the distributions of one step. */
function cacheBytes(config: ModelConfig, sampling: Sampling): number {
  const rows = rowsOf(sampling);
  const longest = Math.max(...sampling.promptTokens) + sampling.responseTokens;
  return rows * (longest * cacheBytesPerToken(config) + 3 * 4 * config.vocabSize);
}

const rowsOf = ({ promptTokens, n, maxSequences }: Sampling): number => Math.min(maxSequences, promptTokens.length * n);

/** Seconds as a linear function of the work: `fixed` for any run, `slope` for each unit of work. */
export type Line = { readonly fixed: number; readonly slope: number };

/** The line through the two largest measurements. With one alone, or where more work took no longer, it goes through 0. */
export function lineThrough(points: readonly { readonly work: number; readonly seconds: number }[]): Line {
  const [large, small] = points.toSorted((a, b) => b.work - a.work);
  if (large === undefined) return { fixed: 0, slope: 0 };
  const slope = small === undefined ? 0 : (large.seconds - small.seconds) / (large.work - small.work);
  if (slope <= 0) return { fixed: 0, slope: large.seconds / large.work };
  const fixed = large.seconds - slope * large.work;
  return fixed >= 0 ? { fixed, slope } : { fixed: 0, slope: large.seconds / large.work };
}

/** The time of work on this machine: of passes by their operations, of a decoding step by its rows. */
export type Rates = {
  readonly forward: Line;
  readonly train: Line;
  readonly decode: Line;
  /** One optimizer step, per parameter. */
  readonly update: number;
};

/** Seconds of one step by phase, in the order of the plan. */
export function stepSeconds(plan: StepPlan, rates: Rates): Map<string, number> {
  const phases = new Map<string, number>();
  const add = (timer: string, seconds: number) => phases.set(timer, (phases.get(timer) ?? 0) + seconds);
  const configOf = (role: string) => plan.roles.find(({ name }) => name === role)!.config;
  for (const sampling of plan.sampling) add(sampling.timer, samplingSeconds(configOf(SAMPLER), sampling, rates));
  for (const pass of plan.passes) add(pass.timer, pass.times * passSeconds(configOf(pass.role), pass, rates));
  return phases;
}

/** The mean over the batches of a pass. */
function passSeconds(config: ModelConfig, { kind, batches, micro }: Pass, rates: Rates): number {
  const { fixed, slope } = rates[kind];
  const blocks = batches.flatMap((batch) => blocksOf(config, batch, micro));
  const seconds = blocks.reduce((total, block) => total + fixed + slope * operations(config, kind, block), 0);
  return seconds / batches.length + (kind === "train" ? rates.update * parameterCount(config) : 0);
}

/** Each prompt is read once; then as many sequences as fit are decoded together, a token per step. */
function samplingSeconds(config: ModelConfig, sampling: Sampling, { forward, decode }: Rates): number {
  const { promptTokens, n, responseTokens } = sampling;
  const rows = rowsOf(sampling);
  const rounds = (promptTokens.length * n) / rows;
  const tokens = promptTokens.reduce((a, b) => a + b, 0);
  const time = tokens / promptTokens.length;
  const reading =
    forward.fixed + forward.slope * operations(config, "forward", { tokens, counted: 0, time, isShared: false });
  return reading + rounds * responseTokens * (decode.fixed + decode.slope * rows);
}

/**
 * Floating-point operations of a micro-batch, by the costs of the model's parts; a gradient takes twice as many again.
 */
export function operations(config: ModelConfig, kind: Pass["kind"], { tokens, counted, time }: Block): number {
  const keys = isLong(time) ? 0.625 * time : time;
  const { layers, head } = modelCost(config, { use: kind, length: time, keys });
  const forward = tokens * layers.flops + counted * head.flops;
  return kind === "train" ? 3 * forward : forward;
}
