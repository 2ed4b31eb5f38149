/** How fast this machine multiplies matrices: what the use of a model's operations (MFU) is compared with. */
import { input, matmul } from "../../graph/ops.ts";
import { compile } from "../../onnx/emit.ts";
import type { Runtime } from "../../runtime/runtime.ts";
import { sharedFloats } from "../../runtime/vectors.ts";

/** Rows and columns of the matrices; a product of this size takes some milliseconds on a core. */
const SIZE = 512;
const RUNS = 6;

/** Floating-point operations per second of the fastest of a few products. */
export async function measurePeak(runtime: Runtime): Promise<number> {
  const product = await runtime.load(compile({ c: matmul(input("a", [SIZE, SIZE]), input("b", [SIZE, SIZE])) }));
  const arrays = { a: ones(), b: ones(), c: sharedFloats(SIZE * SIZE) };
  let fastest = Number.POSITIVE_INFINITY;
  for (let run = 0; run < RUNS; run++) {
    const start = performance.now();
    await runtime.run(product, { arrays });
    fastest = Math.min(fastest, (performance.now() - start) / 1000);
  }
  return (2 * SIZE ** 3) / fastest;
}

const ones = (): Float32Array<SharedArrayBuffer> => sharedFloats(SIZE * SIZE).fill(1);
