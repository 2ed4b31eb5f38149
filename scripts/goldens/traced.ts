/**
 * Runs a traced loss on rows of numbers, in the interpreter's double precision: its value, its metrics, and its
 * gradient with respect to the tensors that are asked for.
 */

import type { Rows } from "../../src/algos/batch.ts";
import type { LossParts, LossTensors } from "../../src/algos/losses/token-loss.ts";
import * as o from "../../src/graph/ops.ts";
import { grad } from "../../src/graph/vjp.ts";
import { interpret } from "../../src/runtime/interpreter.ts";
import { invariant } from "../../src/util/errors.ts";

export type LossRun = {
  build(tensors: LossTensors): LossParts;
  /** Per-token tensors by name, rows of one length. */
  readonly rows: Readonly<Record<string, Rows>> & { readonly mask: Rows };
  readonly scalars: Readonly<Record<string, number>>;
  /** Names of `rows` to differentiate by. */
  readonly wrt?: readonly string[];
};

export type LossValues = {
  readonly loss: number;
  readonly metrics: Record<string, number>;
  readonly gradients: Record<string, number[][]>;
};

/** The nodes of a loss and its gradients, and the arrays they read. */
export function traceLoss({ build, rows, scalars, wrt = [] }: LossRun) {
  const shape = [rows.mask.length, rows.mask[0]?.length ?? 0];
  const tensors = {
    ...Object.fromEntries(Object.keys(rows).map((name) => [name, o.input(name, shape)])),
    ...Object.fromEntries(Object.keys(scalars).map((name) => [name, o.input(name, [])])),
    mask: o.input("mask", shape),
  } as LossTensors; // the intersection of a record and one of its keys, which a spread does not show
  const { loss, metrics = {} } = build(tensors);
  const gradients = grad(
    loss,
    wrt.map((name) => tensors[name]!),
  );
  const outputs = {
    loss,
    ...Object.fromEntries(Object.entries(metrics).map(([name, node]) => [`metric:${name}`, node])),
    ...Object.fromEntries(wrt.map((name, i) => [`gradient:${name}`, gradients[i]!])),
  };
  const inputs = {
    ...Object.fromEntries(Object.entries(rows).map(([name, list]) => [name, list.flatMap((row) => Array.from(row))])),
    ...Object.fromEntries(Object.entries(scalars).map(([name, value]) => [name, [value]])),
  };
  return { outputs, inputs, width: shape[1]! };
}

/** The values of a loss. */
export function runLoss(run: LossRun): LossValues {
  const { outputs, inputs, width } = traceLoss(run);
  const found = interpret(outputs, inputs);
  return readValues((name) => found[name]!.data, Object.keys(outputs), width);
}

/** Values by the names that `traceLoss` gives its outputs. */
export function readValues(
  read: (name: string) => ArrayLike<number>,
  names: readonly string[],
  width: number,
): LossValues {
  const starting = (prefix: string) => names.filter((name) => name.startsWith(prefix));
  const named = <T>(prefix: string, value: (data: ArrayLike<number>) => T): Record<string, T> =>
    Object.fromEntries(starting(prefix).map((name) => [name.slice(prefix.length), value(read(name))]));
  const first = (data: ArrayLike<number>): number => {
    invariant(data.length === 1, `a loss or metric has ${data.length} values`);
    return data[0]!;
  };
  return {
    loss: first(read("loss")),
    metrics: named("metric:", first),
    gradients: named("gradient:", (data) => unflatten(data, width)),
  };
}

export function unflatten(data: ArrayLike<number>, width: number): number[][] {
  const flat = Array.from(data);
  return Array.from({ length: flat.length / width }, (_, row) => flat.slice(row * width, (row + 1) * width));
}
