/**
 * The graphs of the embedded engine: a model's forward pass with the heads that are asked for, and the training step
 * with a loss behind it. One compiled program serves every micro-batch of its form: sizes are bound per run.
 *
 * Attention is cut into parts along time, which saves work on long sequences and costs some on short ones.
 */
import { extraName, extraShape } from "../../algos/losses/token-loss.ts";
import { headLogits } from "../../graph/formulas.ts";
import type { Node } from "../../graph/node.ts";
import { scope } from "../../graph/node.ts";
import * as o from "../../graph/ops.ts";
import { type Dim, plus, times } from "../../graph/shape.ts";
import { splitSparse } from "../../graph/sparse.ts";
import { grad } from "../../graph/vjp.ts";
import type { ModelConfig, ParameterSpec } from "../../models/config.ts";
import type { Position } from "../../models/parts/parts.ts";
import {
  headWeight,
  logits,
  type ParameterNodes,
  parameterNodes,
  scores,
  type Transformed,
  transformer,
} from "../../models/transformer.ts";
import { branching, causal } from "../../nn/attention.ts";
import { compile, type Program } from "../../onnx/emit.ts";
import { invariant } from "../../util/errors.ts";
import type { HeadName, LossTensors, TokenLoss } from "../contract.ts";
import { byRotation } from "./rotations.ts";

/** The number of parts along time in which attention is computed. */
export type Parts = 1 | 4;

/** How a micro-batch is laid out: rows of padded sequences, or branches of packed ones that share prefixes. */
export type Form =
  | { readonly kind: "rows"; readonly parts: Parts }
  | { readonly kind: "branches"; readonly trunkParts: Parts; readonly branchParts: Parts };

/** Programs of the same key serve the same micro-batches. */
export const formKey = (form: Form): string =>
  form.kind === "rows" ? `rows ${form.parts}` : `branches ${form.trunkParts} ${form.branchParts}`;

/** A micro-batch's tokens through the model, and the grid [batch, time] in which losses see them. */
type Body = { readonly built: Transformed; readonly tokens: Dim; readonly grid: readonly [Dim, Dim] };

/** Numbers in a row of a position scheme's tables. */
const widthOf = ({ size }: Position): number => size / 2;

const bodies: {
  [K in Form["kind"]]: (form: Extract<Form, { kind: K }>, config: ModelConfig, p: ParameterNodes) => Body;
} = {
  rows: ({ parts }, config, p) => {
    const time = `${parts}*span`;
    const ids = o.input("ids", ["batch", time], "i32");
    const mix = byRotation(config, { rows: time, widthOf }, causal);
    return { built: transformer(config, p, { ids, mix }), tokens: times("batch", time), grid: ["batch", time] };
  },
  branches: ({ trunkParts, branchParts }, config, p) => {
    const [trunk, branch] = [`${trunkParts}*trunkSpan`, `${branchParts}*branchSpan`];
    const cells = plus(times("groups", trunk), times(times("groups", "members"), branch));
    const grids = {
      groups: "groups",
      members: "members",
      trunk,
      branch,
      cells: o.input("cells", [cells], "i32"),
      places: o.input("cell_of", ["tokens"], "i32"),
      isCell: o.input("is_cell", [cells, 1]),
      trunkMask: o.input("trunk_mask", ["groups", 1, 1, 1, trunk]),
    };
    const mix = byRotation(config, { rows: "tokens", widthOf }, (rotation) => branching({ ...grids, rotation }));
    const ids = o.input("ids", [1, "tokens"], "i32");
    return { built: transformer(config, p, { ids, mix }), tokens: "tokens", grid: ["rows", "length"] };
  },
};

/** What a program reads of one micro-batch; `rows.ts` and `branches.ts` fill these inputs. */
function batchInputs(config: ModelConfig, p: ParameterNodes, form: Form) {
  const make = bodies[form.kind] as (form: Form, config: ModelConfig, p: ParameterNodes) => Body; // keyed by its kind
  const { built, tokens, grid } = make(form, config, p);
  return {
    hidden: built.hidden,
    losses: built.losses,
    positions: o.input("positions", ["n"], "i32"),
    rank: o.input("rank", [tokens], "i32"),
    isRead: o.input("is_read", [tokens, 1]),
    targets: o.input("targets", ["n"], "i32"),
    grid: o.input("grid", grid, "i32"),
    places: o.input("places", ["n"], "i32"),
    mask: o.input("mask", grid),
  };
}

type Inputs = ReturnType<typeof batchInputs>;

/** The hidden states of the positions that a head reads, [n, width]. */
function countedHidden({ hidden, isRead, positions, rank }: Inputs): Node {
  return scope("head", () => o.rearrange(o.mul(hidden, isRead), positions, rank));
}

/** The outputs of the heads for the counted tokens, [n] each. */
function headOutputs(
  config: ModelConfig,
  p: ParameterNodes,
  inputs: Inputs,
  heads: readonly HeadName[],
  temperature: number,
): Record<string, Node> {
  const hidden = countedHidden(inputs);
  const attrs = { softcap: config.headConfig.softcap, temperature };
  const make: Record<HeadName, () => Node> = {
    logprobs: () => o.tokenLogprobs(hidden, headWeight(p), inputs.targets, attrs),
    entropy: () => o.tokenEntropy(hidden, headWeight(p), attrs),
    sumPiSquared: () => o.sum(o.square(o.softmax(headLogits(hidden, headWeight(p), attrs))), [-1]),
    values: () => scores(hidden, config, p),
    scores: () => scores(hidden, config, p),
  };
  return scope("head", () => Object.fromEntries(heads.map((head) => [head, make[head]()])));
}

/** Outputs per counted token, without gradients. */
export function forwardProgram(
  config: ModelConfig,
  heads: readonly HeadName[],
  { temperature, form }: { temperature: number; form: Form },
): Program {
  const p = parameterNodes(config);
  return compile(headOutputs(config, p, batchInputs(config, p, form), heads, temperature));
}

/** The logits of the counted positions, [n, vocabulary]. */
export function logitsProgram(config: ModelConfig, form: Form): Program {
  const p = parameterNodes(config);
  const hidden = countedHidden(batchInputs(config, p, form));
  return compile({ logits: logits(hidden, config, p) });
}

/** Rows of a gradient that are added by index after the run: output `rows` at the ids of input `ids`. */
export type RowGradient = {
  readonly parameter: string;
  readonly rows: string;
  readonly ids: string;
  /** Numbers in a row. */
  readonly width: number;
};
export type TrainProgram = {
  readonly program: Program;
  readonly metrics: readonly string[];
  readonly rowGradients: readonly RowGradient[];
  /** Parameters whose gradient consists of rows only: no output overwrites the gradient of the step before. */
  readonly clear: readonly string[];
};

export const gradName = (parameter: string): string => `grad/${parameter}`;
export const sumName = (parameter: string): string => `sum/${parameter}`;
export const metricName = (metric: string): string => `metric/${metric}`;

/** A model whose parameters may be frozen. */
export type TrainedModel = { readonly config: ModelConfig; readonly specs: readonly ParameterSpec[] };

/**
 * One micro-batch of training: loss, metrics, and the gradient of every parameter that is trained. With `isAdding` the
 * gradient starts from the arrays that `sumName` gives, which may be the ones it is written to.
 */
export function trainProgram(
  { config, specs }: TrainedModel,
  loss: TokenLoss,
  { isAdding, form }: { isAdding: boolean; form: Form },
): TrainProgram {
  const p = parameterNodes(config, specs);
  const inputs = batchInputs(config, p, form);
  const unused = Object.keys(inputs.losses);
  invariant(unused.length === 0, `the training program does not add the losses of parts: ${unused.join(", ")}`);
  const counted = headOutputs(config, p, inputs, loss.heads, loss.temperature ?? 1);
  const built = scope("loss", () => loss.build(lossTensors(loss, inputs, counted)));
  const metrics = { loss: built.loss, ...built.metrics };

  const names = specs.filter(({ isTrained }) => isTrained).map(({ name }) => name);
  const gradients = grad(
    built.loss,
    names.map((name) => p.byName.get(name)!),
  );
  const outputs: Record<string, Node> = {};
  const rowGradients: RowGradient[] = [];
  const clear: string[] = [];
  gradients.forEach((gradient, i) => {
    const parameter = names[i]!;
    const { dense, rows } = splitSparse(gradient);
    if (dense === null) clear.push(parameter);
    else {
      const before = o.input(sumName(parameter), dense.shape);
      outputs[gradName(parameter)] = isAdding ? o.add(before, dense) : dense;
    }
    rows.forEach((part, k) => {
      const output = `rows/${k}/${parameter}`;
      outputs[output] = part.rows;
      rowGradients.push({ parameter, rows: output, ids: inputNameOf(part.ids), width: Number(part.rows.shape[1]) });
    });
  });
  for (const [name, node] of Object.entries(metrics)) outputs[metricName(name)] = node;
  return { program: compile(outputs), metrics: Object.keys(metrics), rowGradients, clear };
}

/** What the loss reads: the counted tokens laid out as [batch, time], zero where the mask is zero. */
function lossTensors(loss: TokenLoss, inputs: Inputs, counted: Readonly<Record<string, Node>>): LossTensors {
  const tensors: Record<string, Node> & { mask: Node } = { mask: inputs.mask };
  for (const [name, node] of Object.entries(counted)) {
    tensors[name] = o.mul(o.rearrange(node, inputs.grid, inputs.places), inputs.mask);
  }
  for (const extra of loss.extra ?? []) {
    tensors[extraName(extra)] = o.input(`extra/${extraName(extra)}`, extraShape(inputs.mask.shape, extra));
  }
  for (const name of loss.scalars ?? []) tensors[name] = o.input(`scalar/${name}`, []);
  return tensors;
}

/** The graph input that ids come from; they may be reshaped on the way. */
function inputNameOf(ids: Node): string {
  if (ids.op === "reshape") return inputNameOf(ids.inputs[0]!);
  invariant(ids.op === "input", `rows are added by ids that come from ${ids.op}`);
  return ids.attrs.name;
}
