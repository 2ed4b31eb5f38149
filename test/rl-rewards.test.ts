/** Rewards that come over HTTP while a run samples: a judge that writes its score, and services that send a number. */
import { once } from "node:events";
import { createServer, type Server, type ServerResponse } from "node:http";
import { json as readJson } from "node:stream/consumers";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { parseRollouts } from "../src/run/rollouts.ts";
import { Yard } from "./rl-yard.ts";
import { pause } from "./sandbox.ts";

let yard: Yard;
beforeAll(async () => {
  yard = await Yard.make();
});
afterAll(() => yard.remove());

const open: Server[] = [];
afterEach(async () => {
  for (const server of open.splice(0)) {
    server.closeAllConnections();
    await new Promise((resolve) => server.close(resolve));
  }
});

/** What a request holds of what a test looks at. */
type Asked = {
  readonly path: string;
  readonly body: Readonly<Record<string, unknown>> & { readonly messages?: readonly { readonly content: string }[] };
};
/** What is answered; a number is the status of a refusal, null is no answer at all. */
type Answer = (asked: Asked, count: number) => object | number | null;

/** A server on this machine; `asked` fills with what it was asked. */
async function listen(answer: Answer): Promise<{ url: string; asked: Asked[] }> {
  const asked: Asked[] = [];
  const server = createServer(async (request, response: ServerResponse) => {
    asked.push({ path: request.url ?? "", body: (await readJson(request)) as Asked["body"] });
    const said = answer(asked.at(-1)!, asked.length);
    if (said === null) return;
    if (typeof said === "number") response.writeHead(said).end("not now");
    else response.writeHead(200, { "content-type": "application/json" }).end(JSON.stringify(said));
  });
  open.push(server);
  await once(server.listen(0, "127.0.0.1"), "listening");
  const address = server.address();
  return { url: `http://127.0.0.1:${typeof address === "object" ? address?.port : 0}`, asked };
}

const ppo = (run: string, ...overrides: readonly string[]) => yard.command(...yard.args(run, overrides));
const sevensIn = (text: string) => text.split("7").length - 1;
const scores = async (run: string) => (await yard.metrics(run)).map((data) => data["critic/score/mean"]);

describe("a judge", () => {
  const template = "Question {prompt} Truth {ground_truth} Answer <{response}>";
  const keys = (url: string) => [
    `reward_model.judge.url=${url}/v1`,
    "reward_model.judge.model=strict",
    "reward_model.judge.range=[0,6]",
    `reward_model.judge.template="${template}"`,
  ];
  const questionOf = ({ body }: Asked) => body.messages?.at(-1)?.content ?? "";
  const responseIn = (asked: Asked) => /<(.*)>$/s.exec(questionOf(asked))?.[1] ?? "";
  const reply = (content: string) => ({ choices: [{ message: { role: "assistant", content } }] });
  const fair: Answer = (asked) => reply(`I count them.\n**Score:** ${sevensIn(responseIn(asked))}`);

  test("scores every response, and its reply is a column", async () => {
    const { url, asked } = await listen(fair);
    expect(await ppo("judged", ...keys(url))).toMatchObject({ code: 0 });
    expect(asked).toHaveLength(2 * 16);
    for (const { path, body } of asked) {
      expect([path, body.model]).toEqual(["/v1/chat/completions", "strict"]);
      expect(body.messages?.[0]?.content).toMatch(/^Question (\d),\d: Truth \d*\1 Answer <.*>$/);
    }
    const { rollouts } = await yard.outcome("judged");
    for (const [step, line] of rollouts.slice(0, -1).entries()) {
      const episodes = parseRollouts(line)!.groups.flatMap((group) => group.episodes);
      for (const { response, score, extra } of episodes)
        expect([score, extra.judge_reply]).toEqual([sevensIn(response), `I count them.\n**Score:** ${score}`]);
      expect((await scores("judged"))[step]).toBeCloseTo(episodes.reduce((sum, { score }) => sum + score!, 0) / 16, 10);
    }
  });

  test("that is away for a moment changes nothing", async () => {
    const { url, asked } = await listen((request, count) => (count % 7 === 1 ? 503 : fair(request, count)));
    const { code, said } = await ppo("patient", ...keys(url));
    expect({ code, said }).toEqual({
      code: 0,
      said: expect.stringMatching(/The judge at .* answered with status 503/),
    });
    expect(asked.length).toBeGreaterThan(2 * 16);
    const [judged, patient] = [await yard.outcome("judged"), await yard.outcome("patient")];
    expect([patient.lines, patient.rollouts, patient.files]).toEqual([judged.lines, judged.rollouts, judged.files]);
  });

  const replies: readonly (readonly [what: string, content: string, says: RegExp])[] = [
    ["does not score", "It depends.", /The judge's reply "It depends\." has no score/],
    ["scores out of range", "Score: 11", /The judge gave 11, which is not between 0 and 6/],
  ];
  test.each(replies)(
    "that %s now and then costs those samples, and ends the run beyond the budget",
    async (_, content, says) => {
      const { url } = await listen((request, count) => (count % 4 === 0 ? reply(content) : fair(request, count)));
      const within = await ppo("unsure", ...keys(url), "reward.error_budget=1", "trainer.resume_mode=disable");
      expect(within).toEqual({ code: 0, said: expect.stringMatching(says) });
      expect(within.said).toMatch(/The sample is left out of training\./);
      const beyond = await ppo("unsure", ...keys(url), "reward.error_budget=0", "trainer.resume_mode=disable");
      expect(beyond).toEqual({ code: 2, said: expect.stringMatching(says) });
    },
  );
});

describe("a service", () => {
  const protocols: Readonly<Record<string, { textOf(asked: Asked): string; answer(score: number): object }>> = {
    json: {
      textOf: ({ body }) => `${body.prompt}|${body.response}`,
      answer: (score) => ({ score, acc: score > 0 }),
    },
    vllm: {
      textOf: ({ body }) => String(body.input).replace(":", ":|"),
      answer: (score) => ({ data: [{ probs: [score] }] }),
    },
    sglang: {
      textOf: ({ body }) => String(body.text).replace(":", ":|"),
      answer: (score) => [{ embedding: [-1, score] }],
    },
  };
  const keys = (url: string, protocol: string) => [
    `reward_model.service.url=${url}`,
    `reward_model.service.protocol=${protocol}`,
    `data.val_files=${yard.validation}`,
    "trainer.test_freq=2",
  ];

  test("gives the same run by any protocol", async () => {
    const files = new Set<string>();
    for (const [name, { textOf, answer }] of Object.entries(protocols)) {
      const { url, asked } = await listen((request) => answer(sevensIn(textOf(request).split("|")[1]!)));
      expect([name, await ppo(name, ...keys(url, name))]).toEqual([name, expect.objectContaining({ code: 0 })]);
      expect(asked).toHaveLength(2 * 16 + 2 * 4);
      for (const request of asked) expect(textOf(request)).toMatch(/^\d,\d:\|/);
      expect(await scores(name)).toEqual(await scores("json"));
      files.add(JSON.stringify((await yard.outcome(name)).files["actor/model.safetensors"]));
    }
    expect(files.size).toBe(1);
    const [first] = await yard.metrics("json");
    expect(Object.keys(first!)).toEqual(
      expect.arrayContaining(["val-core/even/acc/mean@1", "val-core/odd/acc/mean@1"]),
    );
  });

  test("that does not answer ends the run within the deadline, and at once after Ctrl-C", async () => {
    const { url, asked } = await listen(() => null);
    const late = [...keys(url, "json"), "reward.timeout=0.2", "reward.error_budget=0"];
    const { code, said } = await ppo("silent", ...late);
    expect({ code, said }).toEqual({ code: 2, said: expect.stringMatching(/no answer within its deadline of 0\.2 s/) });
    asked.length = 0;
    const child = yard.startSft("silent", ...keys(url, "json"));
    while (child.isRunning && asked.length === 0) await pause(5);
    child.process.kill("SIGINT");
    const from = performance.now();
    expect(await child.ended).toBe(130);
    expect(performance.now() - from).toBeLessThan(10_000); // a call may take a minute, and is tried for five
  });
});
