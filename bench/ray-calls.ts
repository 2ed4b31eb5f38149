/** The time of a call to some workers that carries tensors and does nothing: it closes a model that is not open. */
import { Shim, type ShimSpec } from "../src/engine/ray/shim.ts";
import { type CallTimes, rayJobSchema } from "./ray-job.ts";
import { type Answers, serve } from "./serve.ts";

const tokens = 64 * 128;
const calls = 200;
const minutes = (count: number): number => count * 60_000;
const group = (workers: number): ShimSpec => ({
  pools: [{ pool: null, nodes: 1, perNode: workers }],
  device: "cpu",
  bundle: { CPU: 1 },
  address: null,
  init: {},
  env: {},
  local: { num_cpus: workers, object_store_memory: 2 ** 28 },
  isReplacing: false,
  startMs: minutes(5),
  collectiveMs: minutes(5),
  silenceMs: minutes(5),
});

await serve(async (input): Promise<Answers> => {
  const { python, workers } = rayJobSchema.parse(input);
  const shim = await Shim.start(python, group(workers), AbortSignal.any([]));
  const tensor = () => new Int32Array(tokens / workers);
  const message = () => ({ model: -1, rows: 64 / workers, ids: tensor(), positions: tensor(), targets: tensor() });
  const call = () => shim.group().call("close", message);
  for (let i = 0; i < 20; i++) await call();
  return {
    async answer(): Promise<CallTimes> {
      const milliseconds: number[] = [];
      for (let i = 0; i < calls; i++) {
        const start = performance.now();
        await call();
        milliseconds.push(performance.now() - start);
      }
      return { milliseconds };
    },
    close: () => shim.close(),
  };
});
