/**
 * Requests with arbitrary values: the server answers, or returns OpenAI's error body; never a 5xx, and no request stays
 * behind. Many on the small sampler, some on the engine.
 */
import fc from "fast-check";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { ServedModel } from "../src/serve/served-model.ts";
import { expectError, type Served, serveFake, serveTiny } from "./serving.ts";

/** A request that both endpoints take, with something in most fields. */
const full = {
  model: "fake",
  prompt: "Hi",
  input: [{ role: "user", content: [{ type: "input_text", text: "Hi" }] }],
  max_tokens: 4,
  n: 2,
  stop: ["x"],
  seed: 1,
  temperature: 0.7,
  top_p: 0.9,
  logit_bias: { 3: 1 },
  tool_choice: "auto",
  response_format: {
    type: "json_schema",
    json_schema: {
      name: "a",
      schema: { type: "object", properties: { a: { type: "string", pattern: "^a+$" } }, required: ["a"] },
    },
  },
  tools: [{ type: "function", function: { name: "f", parameters: { type: "object" } } }],
  messages: [
    { role: "user", content: "Hi" },
    {
      role: "assistant",
      content: "",
      tool_calls: [{ id: "1", type: "function", function: { name: "f", arguments: "{}" } }],
    },
    { role: "tool", tool_call_id: "1", content: "1" },
  ],
};

const names =
  "model prompt messages max_tokens max_completion_tokens n stream stream_options stop seed temperature top_p top_k min_p " +
  "repetition_penalty presence_penalty frequency_penalty logit_bias logprobs top_logprobs echo best_of suffix ignore_eos " +
  "stop_token_ids min_tokens prompt_logprobs return_token_ids return_tokens_as_token_ids skip_special_tokens tools " +
  "include_stop_str_in_output tool_choice response_format chat_template_kwargs add_generation_prompt tokens user " +
  "continue_final_message parallel_tool_calls add_special_tokens return_token_strs input instructions text include " +
  "max_output_tokens store __proto__ other";

const values: readonly unknown[] = [
  null,
  true,
  false,
  0,
  -1,
  1,
  2,
  1.5,
  1e-300,
  1e308,
  -1e308,
  2 ** 53,
  "",
  "a",
  "NaN",
  "\ud800",
  "none",
  "text",
  [],
  {},
  [[]],
  [null],
  [1, 2],
  ["a", "b"],
  { type: "function" },
  { type: "text" },
  { type: "json_object" },
  "required",
  { format: { type: "json_object" } },
  { include_usage: true },
];
const junk = fc.oneof(fc.constantFrom(...values), fc.jsonValue({ maxDepth: 3 }));

/** The body with one value, anywhere inside, replaced by another. */
function mutate(value: unknown, path: readonly number[], to: unknown): unknown {
  const [first, ...rest] = path;
  if (first === undefined || typeof value !== "object" || value === null) return to;
  if (Array.isArray(value))
    return value.length === 0 ? to : value.with(first % value.length, mutate(value[first % value.length], rest, to));
  const keys = Object.keys(value);
  const key = keys[first % Math.max(1, keys.length)];
  if (key === undefined) return to;
  return { ...value, [key]: mutate(Object.entries(value).find(([name]) => name === key)?.[1], rest, to) };
}

const changes = fc.array(
  fc.oneof(
    fc.record({ name: fc.constantFrom(...names.split(" ")), to: junk }),
    fc.record({ path: fc.array(fc.nat(40), { minLength: 1, maxLength: 6 }), to: junk }),
  ),
  { minLength: 1, maxLength: 3 },
);

const bodies = changes.map((list) => {
  let body: unknown = full;
  for (const change of list) {
    if ("path" in change) body = mutate(body, change.path, change.to);
    else if (typeof body === "object" && body !== null) body = { ...body, [change.name]: change.to };
  }
  return body;
});

type Target = Served & { readonly model: ServedModel; close(): Promise<void> };

const targets: readonly [name: string, share: number, open: () => Promise<Target>][] = [
  ["the small sampler", 1, () => serveFake({ maxPositions: 128 }, { maxLength: 128 })],
  ["the engine", 0.3, () => serveTiny({ names: ["fake"] })],
];

for (const [name, share, open] of targets) {
  describe(`whatever a body holds, on ${name}`, () => {
    let served: Target;
    beforeAll(async () => {
      served = await open();
    });
    afterAll(() => served.close());

    const runs = {
      "/v1/completions": 200,
      "/v1/chat/completions": 300,
      "/v1/responses": 200,
      "/tokenize": 100,
      "/detokenize": 50,
    };
    for (const [path, all] of Object.entries(runs)) {
      test(`${path} answers it, or says what is wrong`, async () => {
        await fc.assert(
          fc.asyncProperty(bodies, async (body) => check(path, JSON.stringify(body))),
          { numRuns: Math.ceil(all * share) },
        );
        expect(served.model.samplerStats()).toMatchObject({ running: 0, waiting: 0 });
      });
    }

    test("half a body is a 400", async () => {
      const whole = JSON.stringify(full);
      const cuts = fc.tuple(fc.nat(whole.length - 1), fc.string({ maxLength: 3 }));
      await fc.assert(
        fc.asyncProperty(cuts, async ([at, put]) => check("/v1/chat/completions", whole.slice(0, at) + put)),
        { numRuns: Math.ceil(100 * share) },
      );
    });

    async function check(path: string, body: string): Promise<void> {
      const answer = await served.post(path, body);
      const text = await answer.text();
      expect(answer.status, text).toBeLessThan(500);
      if (answer.status !== 200) expectError(JSON.parse(text));
      else if (!answer.headers.get("content-type")?.includes("event-stream")) JSON.parse(text);
      else {
        expect(text).toMatch(/data: \[DONE\]\n\n$/);
        expect(text).not.toMatch(/^data: \{"error"/m);
      }
    }
  });
}
