/**
 * Golden cases of topic `seqlen_balancing`: Karmarkar-Karp, greedy, workload, micro-batches, statistics.
 *
 * Parts are held against verl's by their sums, sorted: items of equal weight may change places, and ours may also be
 * better, which is a smaller largest sum in no more parts. Every item must be in exactly one part.
 */
import { z } from "zod";
import { balanceMetrics, restoreOrder, workload } from "../../src/algos/balancing/balancing.ts";
import { greedy, karmarkarKarp, type Parts, partSums } from "../../src/algos/balancing/partition.ts";
import { microBatchesByTokens } from "../../src/algos/balancing/token-budget.ts";
import { check, type GoldenCase } from "./compare.ts";

const Numbers = z.array(z.number());
const PartLists = z.array(Numbers);

type Compute = (inputs: unknown) => unknown;
/** Parts of rows, and the number by which rows are balanced. */
type Divide = (
  inputs: unknown,
  version: "0.7" | "0.9",
) => { readonly parts: Parts; readonly weights: readonly number[] };

const divides: Readonly<Record<string, Divide>> = {
  karmarkar_karp: partsBy(karmarkarKarp),
  get_seqlen_balanced_partitions: partsBy(karmarkarKarp),
  greedy_partition: partsBy(greedy),
  rearrange_micro_batches: microBatches,
};

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
  const { function: name = "", inputs, version } = golden;
  const [divide, compute] = [divides[name], computes[name]];
  if (compute !== undefined) return check(golden, () => compute(inputs));
  if (divide === undefined) return [`${golden.name}: there is no check for \`${name}\``];
  const ours = () => divide(inputs, versionOf(version));
  const said = Said.safeParse(golden.outputs).data;
  return said === undefined
    ? check(golden, ours)
    : check({ ...golden, outputs: comparable(said) }, () => told(ours(), said));
}

/** What is compared: the number of parts and, digit for digit, their sums, whatever the order of the parts. */
function comparable(said: z.infer<typeof Said>) {
  const count = "count" in said ? said.count : said.partitions.length;
  return { count, sums: ascending(said.partition_sums).join(" "), sorted: said.sorted_sums.join(" ") };
}

/** The same of our parts; of verl's own parts if ours are better. */
function told({ parts, weights }: ReturnType<Divide>, said: z.infer<typeof Said>) {
  if (!isWhole(parts, weights.length)) throw new Error(`not every row is in one part: ${JSON.stringify(parts)}`);
  const [ours, theirs] = [parts, said.partitions].map((some) => ascending(partSums(weights, some)));
  const isBetter =
    isWhole(said.partitions, weights.length) &&
    parts.length <= said.partitions.length &&
    ours!.at(-1)! < theirs!.at(-1)!;
  const sums = (isBetter ? theirs : ours)!.join(" ");
  return { count: isBetter ? said.partitions.length : parts.length, sums, sorted: sums };
}

/** What verl says of parts; micro-batches have names of their own. */
const Said = z.union([
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

const versionOf = (version = "0.9"): "0.7" | "0.9" => (version.startsWith("0.7") ? "0.7" : "0.9");
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

function microBatches(inputs: unknown, version: "0.7" | "0.9"): ReturnType<Divide> {
  const Inputs = z.object({
    seqlens: Numbers,
    max_token_len: z.number(),
    min_num_micro_batch: z.number().optional(),
    num_batches_divided_by: z.number().optional(),
    use_dynamic_bsz_balance: z.boolean().optional(),
  });
  const given = Inputs.parse(inputs);
  const parts = microBatchesByTokens(given.seqlens, {
    maxTokens: given.max_token_len,
    minCount: given.min_num_micro_batch ?? 1,
    multipleOf: given.num_batches_divided_by ?? 1,
    smallAtEnds: given.use_dynamic_bsz_balance ?? true,
    version,
  });
  return { parts, weights: given.seqlens };
}

function restored(inputs: unknown): unknown {
  const { batch_idx_list, data } = z.object({ batch_idx_list: PartLists, data: Numbers }).parse(inputs);
  return {
    restored: restoreOrder(data, batch_idx_list),
    reverse_idx: restoreOrder([...data.keys()], batch_idx_list),
  };
}

function statistics(inputs: unknown): unknown {
  const Inputs = z.object({ seqlen_list: Numbers, partitions: PartLists, prefix: z.string() });
  const { seqlen_list, partitions, prefix } = Inputs.parse(inputs);
  return balanceMetrics(seqlen_list, partitions, prefix);
}
