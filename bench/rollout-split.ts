/**
 * Where the time of a round of sampling goes: the engine's own decoder and sampler, with a clock around each call of
 * the decoder, and onnxruntime's profile of one step in the middle of the round.
 */
import { Tensor } from "onnxruntime-node";
import { decodeProgram, pastName, presentName } from "../src/engine/embedded/decode-program.ts";
import { EmbeddedDecoder } from "../src/engine/embedded/decoder.ts";
import { evaluateShape } from "../src/graph/shape.ts";
import { type ModelConfig, parameterSpecs, readConfig } from "../src/models/config.ts";
import { layerCache } from "../src/models/layers.ts";
import { loadParameters } from "../src/models/weights.ts";
import type { Port } from "../src/onnx/writer.ts";
import type { Decoder } from "../src/rollout/decoder.ts";
import { draw } from "../src/rollout/draw.ts";
import { plan } from "../src/rollout/plan.ts";
import { Sampler } from "../src/rollout/sampler.ts";
import { emptyState, type Limits, type State } from "../src/rollout/scheduler-state.ts";
import { sessionOptions } from "../src/runtime/devices.ts";
import { Runtime } from "../src/runtime/runtime.ts";
import { Vectors } from "../src/runtime/vectors.ts";
import { Random } from "../src/util/random.ts";
import type { RunProfile } from "./profile.ts";
import { profiledRun, timed } from "./profile-run.ts";
import { type RolloutJob, rolloutJobSchema, type Split } from "./rollout-job.ts";
import { serve } from "./serve.ts";

const CACHE_BYTES = 2 ** 30;
const REPEATS = 3;

await serve(async (value) => {
  const job = rolloutJobSchema.parse(value);
  return { answer: () => measure(job), close: async () => {} };
});

type Clock = { runs: number; moves: number; draws: number };

async function measure(job: RolloutJob): Promise<Split> {
  const config = await readConfig(job.folder);
  const specs = parameterSpecs(config);
  const vectors = new Vectors(specs);
  await loadParameters(job.folder, specs, ({ name }) => vectors.view("weight", name));
  const runtime = new Runtime({ threads: job.threads });
  try {
    const group = await runtime.bind(
      Object.fromEntries(vectors.names.map((name) => [name, vectors.view("weight", name)])),
    );
    const decoder = new EmbeddedDecoder({ runtime, config, cacheBytes: CACHE_BYTES, weights: async () => group });
    const clock: Clock = { runs: 0, moves: 0, draws: 0 };
    const open = (limits = {}) => samplerOf(config, watched(decoder, clock), limits);
    const sampler = open();
    const round = () =>
      Promise.all(
        job.prompts.map((prompt, i) =>
          sampler.sample({ prompt, maxNewTokens: job.newTokens, ignoreEos: true, seed: i }),
        ),
      );
    await round();
    Object.assign(clock, { runs: 0, moves: 0, draws: 0 });
    const whole = await timed(round);
    const times = { ...clock };
    const profile = await profileOf(config, vectors, job);
    const inGraph = (seconds: number) => (times.runs * seconds) / profile.seconds;
    const attention = profile.operations.get("GroupQueryAttention") ?? 0;
    return {
      round: whole - times.draws, // the timed decoder samples a second time
      products: inGraph(profile.products.seconds),
      attention: inGraph(attention),
      otherOperations: inGraph(profile.seconds - profile.products.seconds - attention),
      cacheMoves: times.moves,
      drawing: times.draws,
      scheduling: planningTime(job),
      group: await groupTimes(open({ hasPrefixCache: false }), config),
      contexts: await contextTimes(open({ hasPrefixCache: false }), config),
    };
  } finally {
    await runtime.close();
  }
}

function samplerOf(config: ModelConfig, decoder: Decoder, limits: object): Sampler {
  const parts = { decoder, tokenizer: null, eosIds: [], maxLength: config.maxPositions, limits };
  return new Sampler({ ...parts, exclusive: (work) => work() });
}

/** A decoder whose calls are timed; tokens are sampled from its outputs a second time here, to time that too. */
function watched(decoder: EmbeddedDecoder, clock: Clock): Decoder {
  const moving = (work: () => void) => {
    const start = performance.now();
    work();
    clock.moves += (performance.now() - start) / 1000;
  };
  const random = new Random(0);
  return {
    vocabSize: decoder.vocabSize,
    cacheTokens: decoder.cacheTokens,
    promptTokens: decoder.promptTokens,
    regimeOf: (length) => decoder.regimeOf(length),
    layOut: (capacity, lengths) => moving(() => decoder.layOut(capacity, lengths)),
    copy: (from, to, length) => moving(() => decoder.copy(from, to, length)),
    swap: (a, b, length) => moving(() => decoder.swap(a, b, length)),
    async run(run) {
      const start = performance.now();
      const result = await decoder.run(run);
      const end = performance.now();
      clock.runs += (end - start) / 1000;
      const context = { sampling: { maxNewTokens: 1 }, ids: [], promptLength: 0, banned: [] };
      for (let i = 0; i < run.reads.length; i++) {
        const row = result.probs.subarray(i * decoder.vocabSize, (i + 1) * decoder.vocabSize);
        draw(row, null, context, () => random.uniform());
      }
      clock.draws += (performance.now() - end) / 1000;
      return result;
    },
  };
}

/** One step of all rows in the middle of the round. */
async function profileOf(config: ModelConfig, vectors: Vectors, job: RolloutJob): Promise<RunProfile> {
  const program = decodeProgram(config, "few-tokens", false);
  const batch = job.prompts.length;
  const length = job.prompts[0]!.length + job.newTokens / 2;
  const capacity = job.prompts[0]!.length + job.newTokens;
  const bindings = { batch, time: 1, capacity, places: 256, n: batch };
  const cache = new Map<string, Float32Array>();
  const arrayOf = ({ name, dtype }: Port, size: number): Float32Array | Int32Array => {
    if (dtype === "i32") return new Int32Array(size).fill(name === "lengths" || name === "total" ? length : 0);
    return (
      cache.get(name) ?? (vectors.names.includes(name) ? vectors.view("weight", name) : new Float32Array(size).fill(1))
    );
  };
  const tensors = (ports: readonly Port[]) =>
    Object.fromEntries(
      ports.map((port) => {
        const shape = evaluateShape(port.shape, bindings);
        const data = arrayOf(
          port,
          shape.reduce((a, b) => a * b, 1),
        );
        return [
          port.name,
          data instanceof Float32Array ? new Tensor("float32", data, shape) : new Tensor("int32", data, shape),
        ];
      }),
    );
  for (const port of program.inputs) {
    if (!port.name.startsWith("past/")) continue;
    const shape = evaluateShape(port.shape, bindings);
    const memory = new Float32Array(shape.reduce((a, b) => a * b, 1)).fill(0.1);
    for (const [index, layer] of config.layers.entries()) {
      for (const { name } of layerCache(layer)) {
        if (port.name !== pastName(index, name)) continue;
        cache.set(pastName(index, name), memory);
        cache.set(presentName(index, name), memory);
      }
    }
  }
  const feeds: Record<string, Tensor> = tensors(program.inputs);
  for (const symbol of program.symbols) {
    const size = bindings[symbol as keyof typeof bindings]; // the program's symbols are these
    feeds[`dim.${symbol}`] = new Tensor("int64", BigInt64Array.of(BigInt(size)), [1]);
  }
  const options = sessionOptions({ device: "cpu", threads: job.threads });
  const { profile } = await profiledRun(
    { bytes: program.bytes, feeds, fetches: tensors(program.outputs) },
    options,
    10,
  );
  return profile;
}

/** The time of the scheduler for a round, without a model. */
function planningTime({ prompts, newTokens }: RolloutJob): number {
  const limits: Limits = {
    cacheTokens: 2 ** 17,
    maxSequences: 256,
    maxBatchedTokens: 2048,
    maxRunTokens: 2048,
    maxLength: 1024,
    hasPrefixCache: true,
    regimeOf: () => 0,
  };
  const sequences = prompts.map((prompt, id) => ({
    id,
    request: id,
    ids: [...prompt],
    promptLength: prompt.length,
    wantsPromptLogprobs: false,
    limit: prompt.length + newTokens,
  }));
  let state: State = { ...emptyState(), waiting: sequences };
  let seconds = 0;
  for (let step = 0; step < newTokens; step++) {
    const start = performance.now();
    state = plan(state, limits).state;
    seconds += (performance.now() - start) / 1000;
    for (const { ids } of sequences) ids.push(0);
  }
  return seconds;
}

/** Eight samples of one prompt to their first token, and one. */
async function groupTimes(sampler: Sampler, { vocabSize, maxPositions }: ModelConfig): Promise<Split["group"]> {
  const best = { eight: Infinity, one: Infinity };
  const random = new Random(1);
  for (let i = 0; i <= REPEATS; i++) {
    const prompt = Array.from({ length: Math.min(256, maxPositions / 2) }, () => random.int(vocabSize));
    for (const [name, n] of [
      ["one", 1],
      ["eight", 8],
    ] as const) {
      const seconds = await timed(() => sampler.sample({ prompt, n, maxNewTokens: 1, ignoreEos: true }));
      if (i > 0) best[name] = Math.min(best[name], seconds);
    }
  }
  return best;
}

/** Seconds per step of 8 rows after prompts of several lengths, as far as the model's context allows. */
async function contextTimes(sampler: Sampler, { vocabSize, maxPositions }: ModelConfig): Promise<Split["contexts"]> {
  const contexts: { length: number; seconds: number }[] = [];
  const random = new Random(2);
  const newTokens = 24;
  for (const length of [64, 256, 1024, 2048].filter((it) => it + newTokens <= maxPositions)) {
    const prompt = Array.from({ length }, () => random.int(vocabSize));
    const stamps: number[] = [];
    const onToken = () => stamps.push(performance.now());
    await sampler.sample({ prompt, n: 8, maxNewTokens: newTokens, ignoreEos: true, onToken });
    const steps = stamps.filter((_, i) => i % 8 === 7); // the last token of each step
    const gaps = steps.slice(1).map((stamp, i) => (stamp - steps[i]!) / 1000);
    contexts.push({ length, seconds: Math.min(...gaps) });
  }
  return contexts;
}
