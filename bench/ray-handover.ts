/**
 * The time until vLLM samples from new weights: the workers collect and send them, and vLLM loads them. An optimizer step
 * comes before each transfer and is not timed.
 */
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type Entry, parseOverride } from "../src/config/overrides.ts";
import { ppoSchema } from "../src/config/ppo/schema.ts";
import { resolve } from "../src/config/resolve.ts";
import { RayEngine } from "../src/engine/ray/engine.ts";
import { openServers } from "../src/train/rl/rollout-servers.ts";
import { invariant } from "../src/util/errors.ts";
import { setLevel } from "../src/util/log.ts";
import { type HandoverTimes, handoverJobSchema } from "./ray-job.ts";
import { type Answers, serve } from "./serve.ts";
import { batchOf, meanLoss } from "./train-job.ts";

const handovers = 10;
setLevel("quiet"); // standard output is for the protocol

await serve(async (input): Promise<Answers> => {
  const { folder, python, vllmPython, optimizer, microRows, workers, ...job } = handoverJobSchema.parse(input);
  const { rows, count } = batchOf(job);
  const run = await mkdtemp(join(tmpdir(), "trainyard-handover-"));
  const engine = new RayEngine({ python, vllmPython, workersPerNode: workers });
  const actor = await engine.open({ folder });
  const { config } = resolve(ppoSchema, [settings(folder)], { home: run, env: {} });
  const place = { engine, tokenizer: { eosId: 2, eosIds: [2] }, folder: join(run, "weights") };
  const servers = await openServers(config, place, { signal: AbortSignal.any([]), env: {} });
  invariant(servers !== null, "vLLM is installed in the Python that was named");
  await servers.push(actor); // starts vLLM
  return {
    async answer(): Promise<HandoverTimes> {
      const seconds: number[] = [];
      for (let i = 0; i < handovers; i++) {
        await actor.train(rows, meanLoss, { micro: { rows: microRows }, scalars: { count } });
        await actor.step(optimizer);
        const start = performance.now();
        await servers.push(actor);
        seconds.push((performance.now() - start) / 1000);
      }
      return { seconds };
    },
    async close() {
      await engine.close();
      await rm(run, { recursive: true });
    },
  };
});

/** A random model has no tokenizer, and vLLM needs none: it gets and returns token ids. */
function settings(folder: string): Entry[] {
  const rollout = "actor_rollout_ref.rollout";
  return [
    `actor_rollout_ref.model.path=${folder}`,
    "data.train_files=none",
    "trainer.engine=ray",
    `${rollout}.name=vllm`,
    `${rollout}.prompt_length=64`,
    `${rollout}.response_length=64`,
    `${rollout}.engine_kwargs.vllm.skip_tokenizer_init=true`,
  ].map(parseOverride);
}
