/**
 * Rewards from a service behind an address: a served reward model (vLLM's or SGLang's `/classify`), or any program that
 * takes a sample as JSON and answers with a score.
 *
 * Each protocol is one row of `protocols`. An answer of another form is a failure that shows the answer.
 */
import { z } from "zod";
import { UserError } from "../util/errors.ts";
import { withPath } from "./judge.ts";
import { excerpt, type RemoteOptions, remote } from "./remote.ts";
import type { RewardInput, RewardValue } from "./reward.ts";

type ServiceProtocol = "vllm" | "sglang" | "json";

type ServiceOptions = RemoteOptions & {
  /** Several where calls are spread over servers. */
  readonly urls: readonly string[];
  readonly protocol: ServiceProtocol;
  /** The name under which the model is served; not sent by the protocol `json`. */
  readonly model?: string;
};

/** A sample for a served model, with the text that the model reads: see `servedText` in reward-model.ts. */
export type ServedSample = RewardInput & { readonly servedText?: string };

type Sent = { readonly input: RewardInput; readonly text: string; readonly model: string };
type Protocol = {
  readonly path: string;
  send(sent: Sent): unknown;
  /** Reads the answer; its output is the reward. */
  readonly answer: z.ZodType<RewardValue>;
};

const numbers = z.array(z.number()).min(1);
const last = (values: readonly number[]): number => values[values.length - 1]!;

const Embedding = z.object({ embedding: numbers });

const protocols: Record<ServiceProtocol, Protocol> = {
  vllm: {
    path: "/classify",
    // The score itself, not its sigmoid; the second name is that of newer releases.
    send: ({ text, model }) => ({ model, input: text, activation: false, use_activation: false }),
    answer: z
      .object({ data: z.array(z.object({ probs: numbers })).min(1) })
      .transform(({ data }) => last(data[data.length - 1]!.probs)),
  },
  sglang: {
    path: "/classify",
    send: ({ text, model }) => ({ model, text: [text] }),
    answer: z
      .union([z.array(Embedding).min(1), Embedding.transform((one) => [one])])
      .transform((rows) => last(rows[rows.length - 1]!.embedding)),
  },
  json: {
    path: "",
    send: ({ input }) => ({
      data_source: input.dataSource,
      prompt: input.prompt,
      response: input.response,
      ground_truth: input.groundTruth ?? null,
      extra_info: input.extraInfo,
    }),
    answer: z.union([
      z.number(),
      z.boolean(),
      numbers, // one reward per token
      z.looseObject({ score: z.union([z.number(), z.boolean()]) }),
    ]),
  },
};

/** A reward function that asks a service. A sample without `servedText` is sent as the actor's prompt and response. */
export function serviceReward(options: ServiceOptions): (input: ServedSample) => Promise<RewardValue> {
  const { urls, model = "" } = options;
  const { path, send, answer } = protocols[options.protocol];
  const addresses = urls.map((url) => withPath(url, path));
  const call = remote("The reward service", addresses, options);
  return async (input) => {
    const said = await call(send({ input, text: input.servedText ?? input.prompt + input.response, model }));
    const parsed = answer.safeParse(said);
    if (parsed.success) return parsed.data;
    throw new UserError(
      `The reward service at ${urls.join(", ")} answered ${excerpt(JSON.stringify(said))}, which is not what ` +
        `the protocol ${options.protocol} calls a score. Check the address, the protocol and what is served there.`,
    );
  };
}
