/**
 * Golden cases of topic `seqlen_balancing`: Karmarkar-Karp, greedy, workload, micro-batches, statistics.
 *
 * Parts are compared with verl's by their sums, sorted: items of equal weight may change places, and ours may also be
 * better, which is a smaller largest sum in no more parts. Every item must be in exactly one part.
 *
 * A run cuts micro-batches of padded sequences, so how many there are is not verl's number. Of `rearrange_micro_batches`
 * it is compared how rows are divided among that many parts, as a run divides them among workers; and a run's own
 * micro-batches must hold every row once, within the budget.
 */
import { z } from "zod";
import { balanceMetrics, workload } from "../../src/algos/balancing/balancing.ts";
import { karmarkarKarp, type Parts, partSums } from "../../src/algos/balancing/partition.ts";
import { microBatches } from "../../src/data/balance.ts";
import { check, type GoldenCase } from "./compare.ts";

const Numbers = z.array(z.number());
const PartLists = z.array(Numbers);

type Compute = (inputs: unknown) => unknown;
/** Parts of rows, and the number by which rows are balanced. */
type Divide = (inputs: unknown) => { readonly parts: Parts; readonly weights: readonly number[] };

const divides: Readonly<Record<string, Divide>> = {
  karmarkar_karp: partsBy(karmarkarKarp),
  get_seqlen_balanced_partitions: partsBy(karmarkarKarp),
  greedy_partition: partsBy(greedy),
};

/** verl's greedy division, which no run uses: each item goes to the lightest part, or to one with the fewest items. */
function greedy(weights: ArrayLike<number>, parts: number, { equalSize = false } = {}): Parts {
  const all = Array.from({ length: parts }, () => ({ items: [] as number[], sum: 0 }));
  for (let item = 0; item < weights.length; item++) {
    const fewest = Math.min(...all.map(({ items }) => items.length));
    const open = equalSize ? all.filter(({ items }) => items.length === fewest) : all;
    const lightest = open.reduce((a, b) => (b.sum < a.sum ? b : a));
    lightest.items.push(item);
    lightest.sum += weights[item]!;
  }
  return all.map(({ items }) => items);
}

const computes: Readonly<Record<string, Compute>> = {
  restore_dynamic_batch: restored,
  log_seqlen_unbalance: statistics,
  calculate_workload: (inputs) => {
    const { seqlen_list } = z.object({ seqlen_list: Numbers }).parse(inputs);
    return { workload: seqlen_list.map((length) => workload(length)) };
  },
  ceildiv: (inputs) => {
    const { a, b } = z.object({ a: Numbers, b: Numbers }).parse(inputs);
    const quotients = a.map((value, i) => Math.ceil(value / b[i]!));
    return { ceildiv: quotients, roundup_divisible: quotients.map((quotient, i) => quotient * b[i]!) };
  },
};

/** What differs from the golden outputs; empty when nothing does. */
export async function checkSeqlenBalancing(golden: GoldenCase): Promise<string[]> {
  const { function: name = "", inputs } = golden;
  const [divide, compute] = [divides[name], computes[name]];
  if (compute !== undefined) return check(golden, () => compute(inputs));
  const expected = Expected.safeParse(golden.outputs).data;
  if (name === "rearrange_micro_batches" && expected !== undefined) {
    return check({ ...golden, outputs: comparable(expected) }, () =>
      compared(rearranged(golden, expected.partitions.length), expected),
    );
  }
  if (divide === undefined) return [`${golden.name}: there is no check for \`${name}\``];
  const ours = () => divide(inputs);
  return expected === undefined
    ? check(golden, ours)
    : check({ ...golden, outputs: comparable(expected) }, () => compared(ours(), expected));
}

/** What is compared: the number of parts and, digit for digit, their sums, whatever the order of the parts. */
function comparable(expected: z.infer<typeof Expected>) {
  const count = "count" in expected ? expected.count : expected.partitions.length;
  return { count, sums: ascending(expected.partition_sums).join(" "), sorted: expected.sorted_sums.join(" ") };
}

/** The same of our parts; of verl's own parts if ours are better. */
function compared({ parts, weights }: ReturnType<Divide>, expected: z.infer<typeof Expected>) {
  if (!isWhole(parts, weights.length)) throw new Error(`not every row is in one part: ${JSON.stringify(parts)}`);
  const [ours, theirs] = [parts, expected.partitions].map((some) => ascending(partSums(weights, some)));
  const isBetter =
    isWhole(expected.partitions, weights.length) &&
    parts.length <= expected.partitions.length &&
    ours!.at(-1)! < theirs!.at(-1)!;
  const sums = (isBetter ? theirs : ours)!.join(" ");
  return { count: isBetter ? expected.partitions.length : parts.length, sums, sorted: sums };
}

/** verl's outputs about parts; micro-batches have names of their own. */
const Expected = z.union([
  z.object({ partitions: PartLists, partition_sums: Numbers, sorted_sums: Numbers }),
  z
    .object({
      micro_batch_indices: PartLists,
      token_sums: Numbers,
      sorted_token_sums: Numbers,
      num_micro_batches: z.number(),
    })
    .transform((outputs) => ({
      partitions: outputs.micro_batch_indices,
      partition_sums: outputs.token_sums,
      sorted_sums: outputs.sorted_token_sums,
      count: outputs.num_micro_batches,
    })),
]);

const ascending = (numbers: readonly number[]) => numbers.toSorted((a, b) => a - b);

/** Whether each of `count` rows is in exactly one part. */
function isWhole(parts: Parts, count: number): boolean {
  const rows = ascending(parts.flat());
  return rows.length === count && rows.every((row, i) => row === i);
}

function partsBy(divide: typeof karmarkarKarp): Divide {
  return (inputs) => {
    const Inputs = z.object({ seqlen_list: Numbers, k_partitions: z.number(), equal_size: z.boolean() });
    const { seqlen_list: weights, k_partitions, equal_size: equalSize } = Inputs.parse(inputs);
    const parts = divide(weights, k_partitions, { equalSize });
    const sizes = new Set(parts.map((part) => part.length));
    if (equalSize && sizes.size !== 1) throw new Error(`parts have ${[...sizes].join(" or ")} items`);
    return { parts, weights };
  };
}

function rearranged({ inputs }: GoldenCase, count: number): ReturnType<Divide> {
  const { seqlens, max_token_len: maxTokens } = z.object({ seqlens: Numbers, max_token_len: z.number() }).parse(inputs);
  const cut = microBatches(seqlens, { maxTokens });
  const indices = cut.map((batch) => batch.indices);
  if (!isWhole(indices, seqlens.length))
    throw new Error(`not every row is in one micro-batch: ${JSON.stringify(indices)}`);
  const over = cut.find((batch) => batch.time * batch.indices.length > maxTokens);
  if (over !== undefined) throw new Error(`a micro-batch of ${JSON.stringify(over)} is over ${maxTokens} tokens`);
  return {
    parts: karmarkarKarp(
      seqlens.map((length) => workload(length)),
      count,
    ),
    weights: seqlens,
  };
}

function restored(inputs: unknown): unknown {
  const { batch_idx_list, data } = z.object({ batch_idx_list: PartLists, data: Numbers }).parse(inputs);
  const places = new Map(batch_idx_list.flat().map((row, place) => [row, place]));
  const order = data.map((_, row) => places.get(row)!);
  return { restored: order.map((place) => data[place]), reverse_idx: order };
}

function statistics(inputs: unknown): unknown {
  const Inputs = z.object({ seqlen_list: Numbers, partitions: PartLists, prefix: z.string() });
  const { seqlen_list, partitions, prefix } = Inputs.parse(inputs);
  return balanceMetrics(seqlen_list, partitions, prefix);
}
