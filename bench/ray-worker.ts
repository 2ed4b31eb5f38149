/** Our side of the ray bench: two workers on a cluster of this machine, one optimizer step per command. */
import { RayEngine } from "../src/engine/ray/engine.ts";
import { rayJobSchema } from "./ray-job.ts";
import { type Answers, peakBytes, serve } from "./serve.ts";
import { batchOf, meanLoss, type Step } from "./train-job.ts";

await serve(async (input): Promise<Answers> => {
  const { folder, python, optimizer, microRows, workers, ...job } = rayJobSchema.parse(input);
  const { rows, count } = batchOf(job);
  const engine = new RayEngine({ python, workersPerNode: workers });
  const model = await engine.open({ folder });
  return {
    async answer(): Promise<Step> {
      const start = performance.now();
      const { loss } = await model.train(rows, meanLoss, { micro: { rows: microRows }, scalars: { count } });
      const { gradNorm } = await model.step(optimizer);
      const seconds = (performance.now() - start) / 1000;
      return { seconds, loss: loss!, gradNorm, peakBytes: peakBytes() };
    },
    close: () => engine.close(),
  };
});
