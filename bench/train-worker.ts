/** Our side of the train bench: the embedded engine, one optimizer step per command. */
import { EmbeddedEngine } from "../src/engine/embedded/engine.ts";
import { type Answers, peakBytes, serve } from "./serve.ts";
import { batchOf, jobSchema, meanLoss, type Step } from "./train-job.ts";

await serve(async (input): Promise<Answers> => {
  const job = jobSchema.parse(input);
  const { rows, count } = batchOf(job);
  const engine = new EmbeddedEngine({ threads: job.threads });
  const model = await engine.open({ folder: job.folder });
  return {
    async answer(): Promise<Step> {
      const start = performance.now();
      const { loss } = await model.train(rows, meanLoss, { micro: { rows: rows.length }, scalars: { count } });
      const { gradNorm } = await model.step(job.optimizer);
      const seconds = (performance.now() - start) / 1000;
      return { seconds, loss: loss!, gradNorm, peakBytes: peakBytes() };
    },
    close: () => engine.close(),
  };
});
