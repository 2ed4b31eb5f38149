/**
 * OpenAI's Responses API against the command `serve` with a tiny model of random weights: its answers are those of chat
 * completions, in another form.
 */
import type OpenAI from "openai";
import { zodTextFormat } from "openai/helpers/zod";
import { afterAll, beforeAll, expect, test } from "vitest";
import * as z from "zod";
import { Person, serveCommand } from "./serving.ts";

const parameters = z.toJSONSchema(z.object({ a: z.int().min(0).max(999), to: z.enum(["Paris", "Oslo"]) }));
const messages = [{ role: "user" as const, content: "Describe a person." }];

let served: Awaited<ReturnType<typeof serveCommand>>;
let base: string;
let openai: OpenAI;

beforeAll(async () => {
  served = await serveCommand();
  ({ base, openai } = served);
});
afterAll(() => served.close());

const input = "Describe a person.";

test("responses.parse gives a value of the zod schema", async () => {
  const format = zodTextFormat(Person, "person");
  const { output_parsed, status, usage } = await openai.responses.parse({ model: "tiny", input, text: { format } });
  expect(status).toBe("completed");
  expect(Person.parse(output_parsed)).toEqual(output_parsed);
  expect(usage?.total_tokens).toBe((usage?.input_tokens ?? 0) + (usage?.output_tokens ?? 0));
});

test("the answer is that of a chat completion with the same messages and seed", async () => {
  const seeded = { seed: 4, max_output_tokens: 30 };
  const { output_text } = await openai.responses.create({
    model: "tiny",
    instructions: "Be brief.",
    input: [{ role: "user", content: [{ type: "input_text", text: input }] }],
    ...seeded,
  });
  const { choices } = await openai.chat.completions.create({
    model: "tiny",
    messages: [{ role: "system", content: "Be brief." }, ...messages],
    seed: 4,
    max_tokens: 30,
  });
  expect(output_text).toBe(choices[0]?.message.content);
});

test("streamed events come in order, and together they are the whole answer", async () => {
  const format = zodTextFormat(Person, "person");
  const ask = { model: "tiny", input, text: { format }, seed: 2 };
  const whole = await openai.responses.create(ask);
  const types: string[] = [];
  let text = "";
  let last = -1;
  let final: OpenAI.Responses.Response | undefined;
  for await (const event of await openai.responses.create({ ...ask, stream: true })) {
    expect(event.sequence_number).toBe(++last);
    if (types.at(-1) !== event.type) types.push(event.type);
    if (event.type === "response.output_text.delta") text += event.delta;
    if (event.type === "response.completed") final = event.response;
  }
  expect(types).toEqual([
    "response.created",
    "response.in_progress",
    "response.output_item.added",
    "response.content_part.added",
    "response.output_text.delta",
    "response.output_text.done",
    "response.content_part.done",
    "response.output_item.done",
    "response.completed",
  ]);
  expect(text).toBe(whole.output_text);
  expect(final?.output[0]).toMatchObject({ type: "message", content: [{ type: "output_text", text }] });
  expect(final?.usage).toEqual(whole.usage);
});

test("a call, its result and the next answer make a conversation", async () => {
  const own = [{ type: "function" as const, name: "travel", parameters: parameters, strict: true }];
  const ask = { model: "tiny", tools: own, tool_choice: "required" as const, parallel_tool_calls: false, seed: 1 };
  const stream = openai.responses.stream({ ...ask, input });
  const { output } = await stream.finalResponse();
  const [call] = output;
  if (call?.type !== "function_call") throw new Error("there is no call");
  expect(JSON.parse(call.arguments)).toMatchObject({ a: expect.any(Number), to: expect.any(String) });
  const result = { type: "function_call_output" as const, call_id: call.call_id, output: "It rains." };
  const { type, name, call_id, arguments: written } = call;
  const said = [{ role: "user" as const, content: input }, { type, name, call_id, arguments: written }, result];
  const settings = { model: "tiny", seed: 1 };
  const next = await openai.responses.create({ ...settings, tools: own, input: said, max_output_tokens: 5 });
  expect(next.status).toBe("incomplete");
  expect(next.incomplete_details).toEqual({ reason: "max_output_tokens" });
  const { choices, usage } = await openai.chat.completions.create({
    ...settings,
    max_tokens: 5,
    tools: own.map(({ type: kind, ...rest }) => ({ type: kind, function: rest })),
    messages: [
      { role: "user", content: input },
      { role: "assistant", tool_calls: [{ id: call_id, type: "function", function: { name, arguments: written } }] },
      { role: "tool", tool_call_id: call_id, content: "It rains." },
    ],
  });
  expect(next.output_text).toBe(choices[0]?.message.content);
  expect(next.usage?.input_tokens).toBe(usage?.prompt_tokens);
});

test.each<[body: Record<string, unknown>, param: string, message: RegExp]>([
  [{ previous_response_id: "resp_1" }, "previous_response_id", /stores nothing\. Send all earlier items/],
  [{ store: true }, "store", /stores no responses/],
  [{ background: true }, "background", /only while the client waits/],
  [{ truncation: "auto" }, "truncation", /never shortened/],
  [{ input: [] }, "input", /`input` is \[\]/],
  [
    { input: [{ role: "user", content: [{ type: "input_image" }] }] },
    "input",
    /`input\[0\]\.content\[0\]` is of the type "input_image"/,
  ],
  [{ input: [{ type: "item_reference", id: "x" }] }, "input", /`input\[0\]\.type` is "item_reference"/],
  [{ max_output_tokens: 99_999 }, "max_output_tokens", /`max_output_tokens` asks for 99999 more/],
  [{ tools: [{ type: "web_search" }] }, "tools[0].type", /`tools\[0\]\.type` is "web_search"/],
  [{ text: { format: { type: "xml" } } }, "text.format", /`text\.format\.type` is "xml"/],
  [
    { text: { format: { type: "json_schema", name: "a", schema: { type: "array", uniqueItems: true } } } },
    "text.format",
    /`text\.format\.schema\.uniqueItems` is not supported/,
  ],
  [
    { tools: [{ type: "function", name: "f", parameters: { not: {} } }], tool_choice: "required" },
    "tools",
    /`tools\[0\]\.parameters\.not` is not supported/,
  ],
])("%j is refused in the words of the endpoint", async (body, param, message) => {
  const answer = await fetch(`${base}/responses`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ model: "tiny", input, ...body }),
  });
  expect(answer.status).toBe(400);
  const { error }: { error: Record<string, string> } = JSON.parse(await answer.text());
  expect(error).toMatchObject({ param, type: "invalid_request_error", message: expect.stringMatching(message) });
});
