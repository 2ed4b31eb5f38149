/**
 * Reads onnxruntime's profile: the time of every operation in each run, and the operations of the matrix products.
 *
 * The inner dimension of a product follows from its shapes, whichever operand is transposed: the last two axes of the
 * left operand are the inner dimension and the rows of the result.
 */
import * as z from "zod";
import { invariant } from "../src/util/errors.ts";

const shapesSchema = z.array(z.record(z.string(), z.array(z.int())));
const eventsSchema = z.array(
  z.object({
    cat: z.string(),
    name: z.string(),
    ts: z.number(),
    dur: z.number(),
    args: z.object({
      op_name: z.string().optional(),
      input_type_shape: shapesSchema.optional(),
      output_type_shape: shapesSchema.optional(),
    }),
  }),
);
type Event = z.infer<typeof eventsSchema>[number];

export type RunProfile = {
  readonly seconds: number;
  readonly products: { readonly seconds: number; readonly flops: number };
  /** Seconds by the name of the operation. */
  readonly operations: ReadonlyMap<string, number>;
};

const productNames = new Set(["Gemm", "FusedGemm", "MatMul", "FusedMatMul"]);

/** The runs of a profile, in order. Times in the file are microseconds. */
export function readProfile(text: string): RunProfile[] {
  const events = eventsSchema.parse(JSON.parse(text));
  const kernels = events.filter(({ cat, name }) => cat === "Node" && name.endsWith("_kernel_time"));
  const runs = events.filter(({ name }) => name === "model_run").toSorted((a, b) => a.ts - b.ts);
  return runs.map(({ ts, dur }) =>
    profileOf(
      kernels.filter((event) => event.ts >= ts && event.ts <= ts + dur),
      dur,
    ),
  );
}

function profileOf(kernels: readonly Event[], duration: number): RunProfile {
  const operations = new Map<string, number>();
  const products = { seconds: 0, flops: 0 };
  for (const kernel of kernels) {
    const name = kernel.args.op_name ?? "unknown";
    const seconds = kernel.dur / 1e6;
    operations.set(name, (operations.get(name) ?? 0) + seconds);
    if (!productNames.has(name)) continue;
    products.seconds += seconds;
    products.flops += productFlops(kernel);
  }
  return { seconds: duration / 1e6, products, operations };
}

function productFlops({ name, args }: Event): number {
  const left = Object.values(args.input_type_shape?.[0] ?? {})[0];
  const result = Object.values(args.output_type_shape?.[0] ?? {})[0];
  const rows = result?.at(-2);
  invariant(left !== undefined && left.length > 1 && rows, `the profile gives no shapes of matrices for ${name}`);
  const inner = (left.at(-1)! * left.at(-2)!) / rows;
  return 2 * inner * result!.reduce((a, b) => a * b, 1);
}
