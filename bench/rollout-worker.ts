/** Our side of the rollout bench: the embedded engine's sampler, one round per command. */
import { EmbeddedEngine } from "../src/engine/embedded/engine.ts";
import { cacheBytesPerToken } from "../src/engine/embedded/kv-cache.ts";
import { type RolloutJob, type Round, rolloutJobSchema } from "./rollout-job.ts";
import { type Answers, peakBytes, serve } from "./serve.ts";

await serve(async (input): Promise<Answers> => {
  const job: RolloutJob = rolloutJobSchema.parse(input);
  const engine = new EmbeddedEngine({ threads: job.threads });
  const model = await engine.open({ folder: job.folder });
  let rounds = 0;
  return {
    async answer(command): Promise<Round | { logprobs: number[] }> {
      if (command !== "step") {
        const { ids } = JSON.parse(command) as { ids: number[] }; // written by `rollout.ts`
        const prompt = job.prompts[0]!;
        const row = { ids: Int32Array.from([...prompt, ...ids]), mask: [...prompt.map(() => 0), ...ids.map(() => 1)] };
        const [outputs] = await model.forward([row], ["logprobs"], { micro: { rows: 1 } });
        return { logprobs: [...outputs!.logprobs!.subarray(prompt.length)] };
      }
      const start = performance.now();
      const completions = await Promise.all(
        job.prompts.map((prompt, i) =>
          model.sample({ prompt, maxNewTokens: job.newTokens, ignoreEos: true, seed: rounds * 1000 + i }),
        ),
      );
      const seconds = (performance.now() - start) / 1000;
      rounds++;
      const heldBytes = 4 * model.parameterCount + model.samplerStats().cachedTokens * cacheBytesPerToken(model.config);
      const { ids, logprobs } = completions[0]!.samples[0]!;
      return { seconds, peakBytes: peakBytes(), heldBytes, ids: [...ids], logprobs: [...logprobs] };
    },
    close: () => engine.close(),
  };
});
