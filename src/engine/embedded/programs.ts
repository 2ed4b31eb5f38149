/**
 * The graphs of the embedded engine: a model's forward pass with the heads that are asked for, and the training step
 * with a loss behind it. One compiled program serves every batch of its kind: `batch`, `span` and `n` are bound per run.
 *
 * Time is `parts` times `span`: attention is cut into so many parts along time, which saves work on long sequences
 * and costs some on short ones. `layout.ts` chooses.
 */
import type { Node } from "../../graph/node.ts";
import { scope } from "../../graph/node.ts";
import * as o from "../../graph/ops.ts";
import { splitSparse } from "../../graph/sparse.ts";
import { grad, headLogits } from "../../graph/vjp.ts";
import type { ModelConfig } from "../../models/config.ts";
import { headWeight, type ParameterNodes, parameterNodes, scores, transformer } from "../../models/transformer.ts";
import { causal } from "../../nn/layers.ts";
import { compile, type Program } from "../../onnx/emit.ts";
import { invariant } from "../../util/errors.ts";
import type { HeadName, LossTensors, TokenLoss } from "../contract.ts";

/** In how many parts along time attention is computed. */
export type Parts = 1 | 4;

const shapes = (parts: Parts) => ({
  batch: "batch",
  time: `${parts}*span`,
  tokens: `${parts}*batch*span`,
  counted: "n",
});

/** Inputs that describe one micro-batch; `layout.ts` fills them. */
function batchInputs(config: ModelConfig, parts: Parts) {
  const shape = shapes(parts);
  const table = [shape.time, config.headDim / 2];
  return {
    ids: o.input("ids", [shape.batch, shape.time], "i32"),
    rotation: { cos: o.input("rope.cos", table), sin: o.input("rope.sin", table) },
    positions: o.input("positions", [shape.counted], "i32"),
    rank: o.input("rank", [shape.tokens], "i32"),
    isRead: o.input("is_read", [shape.tokens, 1]),
    targets: o.input("targets", [shape.counted], "i32"),
    grid: o.input("grid", [shape.batch, shape.time], "i32"),
    places: o.input("places", [shape.counted], "i32"),
    mask: o.input("mask", [shape.batch, shape.time]),
  };
}

type Inputs = ReturnType<typeof batchInputs>;

/** The hidden states of the positions that a head reads, [n, width]. */
function countedHidden(config: ModelConfig, p: ParameterNodes, inputs: Inputs): Node {
  const hidden = transformer(config, p, { ids: inputs.ids, mix: () => causal(inputs.rotation) });
  return scope("head", () => o.rearrange(o.mul(hidden, inputs.isRead), inputs.positions, inputs.rank));
}

/** The outputs of the heads for the counted tokens, [n] each. */
function headOutputs(
  config: ModelConfig,
  p: ParameterNodes,
  inputs: Inputs,
  heads: readonly HeadName[],
  temperature: number,
): Record<string, Node> {
  const hidden = countedHidden(config, p, inputs);
  const attrs = { softcap: config.logitSoftcap, temperature };
  const make: Record<HeadName, () => Node> = {
    logprobs: () => o.tokenLogprobs(hidden, headWeight(p), inputs.targets, attrs),
    entropy: () => o.tokenEntropy(hidden, headWeight(p), attrs),
    sumPiSquared: () => o.sum(o.square(o.softmax(headLogits(hidden, headWeight(p), attrs))), [-1]),
    values: () => scores(hidden, p),
    scores: () => scores(hidden, p),
  };
  return scope("head", () => Object.fromEntries(heads.map((head) => [head, make[head]()])));
}

/** Outputs per counted token, without gradients. */
export function forwardProgram(
  config: ModelConfig,
  heads: readonly HeadName[],
  { temperature, parts }: { temperature: number; parts: Parts },
): Program {
  return compile(headOutputs(config, parameterNodes(config), batchInputs(config, parts), heads, temperature));
}

/** The logits of the counted positions, [n, vocabulary]. */
export function logitsProgram(config: ModelConfig, parts: Parts): Program {
  const p = parameterNodes(config);
  const hidden = countedHidden(config, p, batchInputs(config, parts));
  const attrs = { softcap: config.logitSoftcap, temperature: 1 };
  return compile({ logits: headLogits(hidden, headWeight(p), attrs) });
}

/** Rows of a gradient that are added by index after the run: output `rows` at the ids of input `ids`. */
export type RowGradient = { readonly parameter: string; readonly rows: string; readonly ids: string };
export type TrainProgram = {
  readonly program: Program;
  readonly metrics: readonly string[];
  readonly rowGradients: readonly RowGradient[];
  /** Parameters whose gradient consists of rows alone, so that nothing overwrites what was there before. */
  readonly clear: readonly string[];
};

export const gradName = (parameter: string): string => `grad/${parameter}`;
export const sumName = (parameter: string): string => `sum/${parameter}`;
export const metricName = (metric: string): string => `metric/${metric}`;

/**
 * One micro-batch of training: loss, metrics, and the gradient of every parameter. With `isAdding` the gradient starts
 * from the arrays that `sumName` gives, which may be the ones it is written to.
 */
export function trainProgram(
  config: ModelConfig,
  loss: TokenLoss,
  { isAdding, parts }: { isAdding: boolean; parts: Parts },
): TrainProgram {
  const p = parameterNodes(config);
  const inputs = batchInputs(config, parts);
  const counted = headOutputs(config, p, inputs, loss.heads, loss.temperature ?? 1);
  const built = scope("loss", () => loss.build(lossTensors(loss, inputs, counted)));
  const metrics = { loss: built.loss, ...built.metrics };

  const names = [...p.byName.keys()];
  const gradients = grad(built.loss, [...p.byName.values()]);
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
      rowGradients.push({ parameter, rows: output, ids: inputNameOf(part.ids) });
    });
  });
  for (const [name, node] of Object.entries(metrics)) outputs[metricName(name)] = node;
  return { program: compile(outputs), metrics: Object.keys(metrics), rowGradients, clear };
}

/** What the loss sees: the counted tokens laid out as [batch, time], zero where the mask is zero. */
function lossTensors(loss: TokenLoss, inputs: Inputs, counted: Readonly<Record<string, Node>>): LossTensors {
  const tensors: Record<string, Node> & { mask: Node } = { mask: inputs.mask };
  for (const [name, node] of Object.entries(counted)) {
    tensors[name] = o.mul(o.rearrange(node, inputs.grid, inputs.places), inputs.mask);
  }
  for (const name of loss.extra ?? []) tensors[name] = o.input(`extra/${name}`, inputs.ids.shape);
  for (const name of loss.scalars ?? []) tensors[name] = o.input(`scalar/${name}`, []);
  return tensors;
}

/** The graph input behind ids that were only reshaped on the way. */
function inputNameOf(ids: Node): string {
  if (ids.op === "reshape") return inputNameOf(ids.inputs[0]!);
  invariant(ids.op === "input", `rows are added by ids that come from ${ids.op}`);
  return ids.attrs.name;
}
