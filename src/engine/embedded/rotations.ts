/**
 * The tables by which layers rotate queries and keys: as inputs of a graph, and as arrays for training passes.
 *
 * A model has as many pairs of tables as it has position schemes; most models have one, whose inputs are called
 * `rope.cos` and `rope.sin`.
 */
import * as o from "../../graph/ops.ts";
import type { Dim } from "../../graph/shape.ts";
import { type ModelConfig, positionRegime, positionsOf } from "../../models/config.ts";
import type { RotationTables } from "../../models/parts/part.ts";
import { type Position, positionScheme } from "../../models/parts/parts.ts";
import type { Rotation } from "../../nn/attention.ts";
import { sharedFloats } from "../../runtime/vectors.ts";

/** The input names of the tables of a model's position scheme number `index`. */
export function rotationNames(index: number): { readonly cos: string; readonly sin: string } {
  const name = index === 0 ? "rope" : `rope.${index}`;
  return { cos: `${name}.cos`, sin: `${name}.sin` };
}

/** The tables of a micro-batch as named arrays. */
export function rotationArrays(tables: readonly RotationTables[]): Record<string, Float32Array> {
  return Object.fromEntries(
    tables.flatMap(({ cos, sin }, index) => {
      const names = rotationNames(index);
      return [
        [names.cos, cos],
        [names.sin, sin],
      ];
    }),
  );
}

/** What `make` builds from the rotation of each layer; layers with the same position scheme get the same value. */
export function byRotation<T>(
  config: ModelConfig,
  { rows, widthOf }: { readonly rows: Dim; readonly widthOf: (scheme: Position) => number },
  make: (rotation: Rotation) => T,
): (layer: number) => T {
  const schemes = positionsOf(config);
  const made = schemes.map((scheme, index) => {
    const names = rotationNames(index);
    const shape = [rows, widthOf(scheme)];
    return make({ cos: o.input(names.cos, shape), sin: o.input(names.sin, shape) });
  });
  return (layer) => made[schemes.indexOf(config.layers[layer]!.position)]!;
}

/** Tables for training passes, in shared memory; longer ones are made when they are needed. */
export class RotationCache {
  readonly #schemes: readonly Position[];
  readonly #regimes = new Map<number, { readonly positions: number; readonly tables: readonly RotationTables[] }>();

  constructor(config: ModelConfig) {
    this.#schemes = positionsOf(config);
  }

  /** One pair of tables per position scheme, for `positions` of a sequence of `length` tokens. */
  tables(positions: number, length: number): readonly RotationTables[] {
    const regime = positionRegime(this.#schemes, length);
    let known = this.#regimes.get(regime);
    if (known === undefined || known.positions < positions) {
      const tables = this.#schemes.map((scheme) => {
        const { cos, sin } = positionScheme(scheme).tables(scheme, positions, length);
        return { cos: shared(cos), sin: shared(sin) };
      });
      known = { positions, tables };
      this.#regimes.set(regime, known);
    }
    const { positions: reach } = known;
    const first = (table: Float32Array) => table.subarray(0, positions * (table.length / reach));
    return known.tables.map(({ cos, sin }) => ({ cos: first(cos), sin: first(sin) }));
  }
}

function shared(values: Float32Array): Float32Array<SharedArrayBuffer> {
  const copy = sharedFloats(values.length);
  copy.set(values);
  return copy;
}
