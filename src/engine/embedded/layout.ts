/**
 * A micro-batch as arrays that a program reads. This file makes the arrays that every form has: which hidden states a
 * head reads, and where its results belong in the grid [rows, length] that a loss reads.
 */
import { type Extra, extraName, extraWidth } from "../../algos/losses/token-loss.ts";
import type { ModelConfig } from "../../models/config.ts";
import type { RotationTables } from "../../models/parts/part.ts";
import type { HeadName, TokenRow } from "../contract.ts";
import type { Form, Parts } from "./programs.ts";
import type { Scratch } from "./scratch.ts";

export type Layout = {
  /** The form of the program that runs it. */
  readonly form: Form;
  /** The values of the program's symbolic sizes. */
  readonly bindings: Readonly<Record<string, number>>;
  readonly arrays: Readonly<Arrays>;
  /** Row of the batch and index in it, for each counted token. */
  readonly owners: readonly { readonly row: number; readonly at: number }[];
};

export type LayoutOptions = {
  readonly heads: readonly HeadName[];
  readonly extra: readonly Extra[];
  readonly config: ModelConfig;
  readonly scratch: Scratch;
  /** The tables of each position scheme for `time` positions of a sequence of `longest` tokens. */
  readonly tables: (time: number, longest: number) => readonly RotationTables[];
};

/** A token that counts. */
export type Counted = {
  /** Row of the batch, and index in it. */
  readonly row: number;
  readonly at: number;
  /** The packed or padded token whose hidden state is read. */
  readonly position: number;
  /** The cell of the loss's grid. */
  readonly place: number;
};

export type CountedOptions = {
  readonly rows: readonly TokenRow[];
  /** How many hidden states there are. */
  readonly tokens: number;
  /** Cells of the loss's grid. */
  readonly cells: number;
  /** For each row of the batch: the first cell of the grid that holds it, and which of its tokens the grid holds. */
  readonly starts: readonly {
    readonly row: number;
    readonly place: number;
    readonly from: number;
    readonly to: number;
  }[];
  /** What else the loss reads per token; every row has it. */
  readonly extra: readonly Extra[];
  readonly scratch: Scratch;
};

export type Arrays = Record<string, Int32Array | Float32Array>;

/** The arrays; no two counted tokens are read from the same position. */
export function countedArrays(counted: readonly Counted[], options: CountedOptions): Arrays {
  const { rows, tokens, cells, starts, extra, scratch } = options;
  const rank = scratch.ints("rank", tokens).fill(0);
  const isRead = scratch.floats("is_read", tokens).fill(0);
  const grid = scratch.ints("grid", cells).fill(0);
  const mask = scratch.floats("mask", cells).fill(0);
  const positions = scratch.ints("positions", counted.length);
  const places = scratch.ints("places", counted.length);
  const targets = scratch.ints("targets", counted.length);
  counted.forEach(({ row, at, position, place }, i) => {
    rank[position] = i;
    isRead[position] = 1;
    grid[place] = i;
    mask[place] = 1;
    positions[i] = position;
    places[i] = place;
    targets[i] = rows[row]!.ids[at]!;
  });
  const arrays: Arrays = { rank, is_read: isRead, grid, mask, positions, places, targets };
  for (const wanted of extra) {
    const [name, width] = [extraName(wanted), extraWidth(wanted)];
    const values = scratch.floats(`extra/${name}`, cells * width).fill(0);
    for (const { row, place, from, to } of starts) {
      const given = rows[row]!.extra![name]!; // `checkExtra` has seen it
      for (let i = 0; i < (to - from) * width; i++) values[place * width + i] = given[from * width + i]!;
    }
    arrays[`extra/${name}`] = values;
  }
  return arrays;
}

/** Below this length it does not pay to cut attention into parts. */
const SHORT = 96;

/** `time` is `length` rounded up to whole parts. */
export function partsFor(length: number): { readonly parts: Parts; readonly span: number; readonly time: number } {
  const parts = length < SHORT ? 1 : 4;
  const span = Math.ceil(length / parts);
  return { parts, span, time: span * parts };
}
