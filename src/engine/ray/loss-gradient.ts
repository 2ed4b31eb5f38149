/**
 * The loss on the controller: from the workers' outputs per token it computes the loss, its metrics, and the derivative
 * of the loss with respect to each output.
 *
 * The loss is the same traced function that the embedded engine appends to its model. Here it is a separate graph over
 * [batch, time], compiled once per loss and run on onnxruntime.
 */
import { extraName, extraOf, extraShape, extraWidth } from "../../algos/losses/token-loss.ts";
import type { Node } from "../../graph/node.ts";
import { scope } from "../../graph/node.ts";
import * as o from "../../graph/ops.ts";
import { grad } from "../../graph/vjp.ts";
import { compile, type Program } from "../../onnx/emit.ts";
import type { Executable, Runtime } from "../../runtime/runtime.ts";
import { invariant } from "../../util/errors.ts";
import type { HeadName, LossMetrics, TokenLoss, TokenRow } from "../contract.ts";
import type { Block } from "./layout.ts";

/** Outputs of the counted tokens of a block, in the order of its places. */
export type Counted = Readonly<Partial<Record<HeadName, Float32Array>>>;

type Trained = { readonly metrics: LossMetrics; readonly gradients: Counted };

type Compiled = {
  readonly executable: Executable;
  readonly metrics: readonly string[];
  readonly gradHeads: readonly HeadName[];
};

export class LossGradients {
  readonly #runtime: Runtime;
  readonly #compiled = new Map<string, Promise<Compiled>>();

  constructor(runtime: Runtime) {
    this.#runtime = runtime;
  }

  /** The heads that the loss depends on; it uses the others for metrics only. */
  async gradHeads(loss: TokenLoss): Promise<readonly HeadName[]> {
    return (await this.#compile(loss)).gradHeads;
  }

  /** Loss, metrics and derivatives of one block. */
  async of(
    loss: TokenLoss,
    block: Block,
    given: { readonly rows: readonly TokenRow[]; readonly outputs: Counted; readonly scalars: LossMetrics },
  ): Promise<Trained> {
    const { executable, metrics, gradHeads } = await this.#compile(loss);
    const size = block.rows * block.time;
    const arrays: Record<string, Float32Array> = { mask: onGrid(block, size, () => 1) };
    for (const head of loss.heads) {
      const values = given.outputs[head];
      invariant(values !== undefined, `the workers returned no ${head}`);
      arrays[headName(head)] = onGrid(block, size, (i) => values[i]!);
    }
    for (const extra of loss.extra ?? []) {
      const width = extraWidth(extra);
      const grid = shared(size * width);
      block.indices.forEach((row, b) => {
        grid.set(extraOf(given.rows[row]!, extra, { loss, row }), b * block.time * width);
      });
      arrays[`extra/${extraName(extra)}`] = grid;
    }
    for (const name of loss.scalars ?? []) {
      const value = given.scalars[name];
      invariant(value !== undefined, `the loss ${loss.key} needs the number ${name}`);
      arrays[`scalar/${name}`] = shared(1).fill(value);
    }
    for (const name of metrics) arrays[metricName(name)] = shared(1);
    for (const head of gradHeads) arrays[gradName(head)] = shared(size);
    await this.#runtime.run(executable, { bindings: { batch: block.rows, time: block.time }, arrays });
    const gradients = gradHeads.map((head) => {
      const grid = arrays[gradName(head)]!;
      return [head, Float32Array.from(block.places, (place) => grid[place]!)] as const;
    });
    return {
      metrics: Object.fromEntries(metrics.map((name) => [name, arrays[metricName(name)]![0]!])),
      gradients: Object.fromEntries(gradients),
    };
  }

  #compile(loss: TokenLoss): Promise<Compiled> {
    let compiled = this.#compiled.get(loss.key);
    if (compiled === undefined) {
      const { program, metrics, gradHeads } = lossProgram(loss);
      compiled = this.#runtime.load(program).then((executable) => ({ executable, metrics, gradHeads }));
      this.#compiled.set(loss.key, compiled);
    }
    return compiled;
  }
}

const headName = (head: HeadName): string => `head/${head}`;
const gradName = (head: HeadName): string => `grad/${head}`;
const metricName = (metric: string): string => `metric/${metric}`;

/** The loss over the workers' outputs, as a program. */
function lossProgram(loss: TokenLoss): {
  readonly program: Program;
  readonly metrics: readonly string[];
  readonly gradHeads: readonly HeadName[];
} {
  const shape = ["batch", "time"];
  const tensors: Record<string, Node> & { mask: Node } = { mask: o.input("mask", shape) };
  const heads = loss.heads.map((head) => o.input(headName(head), shape));
  loss.heads.forEach((head, i) => {
    tensors[head] = heads[i]!;
  });
  for (const extra of loss.extra ?? []) {
    tensors[extraName(extra)] = o.input(`extra/${extraName(extra)}`, extraShape(shape, extra));
  }
  for (const name of loss.scalars ?? []) tensors[name] = o.input(`scalar/${name}`, []);
  const built = scope("loss", () => loss.build(tensors));
  const gradients = grad(built.loss, heads);
  const gradHeads = loss.heads.filter((_, i) => !isZero(gradients[i]!));
  const metrics = { loss: built.loss, ...built.metrics };
  const outputs: Record<string, Node> = {};
  for (const [name, node] of Object.entries(metrics)) outputs[metricName(name)] = node;
  loss.heads.forEach((head, i) => {
    if (gradHeads.includes(head)) outputs[gradName(head)] = gradients[i]!;
  });
  return { program: compile(outputs), metrics: Object.keys(metrics), gradHeads };
}

/** Whether it is the result of `grad` for an input that the loss does not depend on. */
function isZero({ op, inputs }: Node): boolean {
  const [x] = inputs;
  return op === "broadcastTo" && x?.op === "constant" && x.attrs.values.every((value) => value === 0);
}

/** Values of the counted tokens at their places in the grid, 0 elsewhere. */
function onGrid(block: Block, size: number, value: (i: number) => number): Float32Array {
  const grid = shared(size);
  block.places.forEach((place, i) => {
    grid[place] = value(i);
  });
  return grid;
}

function shared(length: number): Float32Array {
  return new Float32Array(new SharedArrayBuffer(4 * length));
}
