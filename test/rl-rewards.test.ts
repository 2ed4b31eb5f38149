/** Rewards that come over HTTP while a run samples: a judge that writes its score, and services that send a number. */
import { once } from "node:events";
import { mkdir, readdir, readFile, writeFile } from "node:fs/promises";
import { createServer, type Server, type ServerResponse } from "node:http";
import { join } from "node:path";
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
  readonly authorization: string | undefined;
  readonly body: Readonly<Record<string, unknown>> & { readonly messages?: readonly { readonly content: string }[] };
};
/** What is answered; a number is the status of a refusal, null is no answer at all. */
type Answer = (asked: Asked, count: number) => object | number | null;

/** A server on this machine; `asked` fills with what it was asked. */
async function listen(answer: Answer): Promise<{ url: string; asked: Asked[] }> {
  const asked: Asked[] = [];
  const server = createServer(async (request, response: ServerResponse) => {
    const { authorization } = request.headers;
    asked.push({ path: request.url ?? "", authorization, body: (await readJson(request)) as Asked["body"] });
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
    ...(protocol === "json" ? [] : [`reward_model.model.path=${yard.model}`]),
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

  /** A folder with the characters' tokenizer, changed, and no model. */
  async function tokenizerFolder(
    name: string,
    config: object,
    change: (json: string) => string = (json) => json,
  ): Promise<string> {
    const folder = yard.path(name);
    await mkdir(folder, { recursive: true });
    const read = (file: string) => readFile(join(yard.model, file), "utf8");
    await writeFile(join(folder, "tokenizer.json"), change(await read("tokenizer.json")));
    const whole = { ...JSON.parse(await read("tokenizer_config.json")), ...config };
    await writeFile(join(folder, "tokenizer_config.json"), JSON.stringify(whole));
    return folder;
  }
  const chat = "{{ bos_token }}{% for m in messages %}[{{ m.role }}]{{ m.content }}{{ eos_token }}{% endfor %}";
  const chatFolder = () => tokenizerFolder("served", { chat_template: chat, bos_token: "S" });
  /** The tokenizer's sevens are eights, and the other way round. */
  const swappedFolder = () => tokenizerFolder("swapped", {}, (json) => json.replace('"7":11,"8":12', '"8":11,"7":12'));
  const responsesOf = async (run: string) =>
    (await yard.outcome(run)).rollouts
      .slice(0, -1)
      .flatMap((line) => parseRollouts(line)!.groups.flatMap(({ episodes }) => episodes.map((it) => it.response)));

  test.each(["vllm", "sglang"])("by %s gets the conversation in the chat template of its own", async (protocol) => {
    const { url, asked } = await listen(() => protocols[protocol]!.answer(1));
    const own = [...keys(url, protocol), `reward_model.model.path=${await chatFolder()}`, "data.val_files=null"];
    expect(await ppo(`own-${protocol}`, ...own, "trainer.logged_tokens=1000000")).toMatchObject({ code: 0 });
    const texts = asked.map(({ body }) => String(body.input ?? body.text));
    // Neither the actor's special tokens nor a beginning twice: S begins the text, E ends each message.
    for (const text of texts) expect(text).toMatch(/^S\[user\]\d,\d:E\[assistant\][\d,:]*E$/);
    const answers = texts.map((text) => /\[assistant\](.*)E$/.exec(text)?.[1] ?? "");
    expect(answers.toSorted()).toEqual((await responsesOf(`own-${protocol}`)).toSorted());
  });

  test("gets responses as `input_tokenizer` decodes them", async () => {
    const { url, asked } = await listen(() => protocols.vllm!.answer(1));
    const other = [`reward_model.model.path=${await chatFolder()}`, "data.val_files=null"];
    const swapped = `reward_model.model.input_tokenizer=${await swappedFolder()}`;
    expect(await ppo("swapped-run", ...keys(url, "vllm"), ...other, swapped)).toMatchObject({ code: 0 });
    const answers = asked.map(({ body }) => /\[assistant\](.*)E$/.exec(String(body.input))?.[1] ?? "");
    const turned = (text: string) => text.replaceAll(/[78]/g, (digit) => (digit === "7" ? "8" : "7"));
    expect(answers.map(turned).toSorted()).toEqual((await responsesOf("swapped-run")).toSorted());
    expect(answers.join("")).toMatch(/[78]/);
  });

  test("without the path of its tokenizer is refused, unless it speaks JSON", async () => {
    const own = keys("http://127.0.0.1:9", "vllm").filter((key) => !key.startsWith("reward_model.model."));
    const { code, said } = await ppo("no-path", ...own);
    expect({ code, said }).toEqual({
      code: 2,
      said: expect.stringMatching(/`reward_model\.model\.path` is missing.*own chat template/),
    });
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

describe("an API key", () => {
  const key = "sk-a-secret-of-the-test-0123456789";
  const ways: Readonly<Record<string, readonly string[]>> = {
    judge: ["reward_model.judge.model=strict", "reward_model.judge.template='{response}'"],
    service: ["reward_model.service.protocol=json"],
  };
  /** A server that quotes the request's header in every answer. */
  const quoting = (kind: string): Answer =>
    kind === "judge"
      ? ({ authorization }) => ({ choices: [{ message: { content: `${authorization} is a key. Score: 1` } }] })
      : ({ authorization }) => ({ score: 1, seen: String(authorization) });
  const keysOf = (kind: string, url: string) => [`reward_model.${kind}.url=${url}`, ...ways[kind]!];
  const start = (env: Readonly<Record<string, string>>, run: string, ...keys: readonly string[]) =>
    yard.commandWith(env, ...yard.args(run, [...keys, "trainer.logger=[console,file]"]));

  const cases: readonly (readonly [kind: string, env: Readonly<Record<string, string>>, named: string | null])[] = [
    ["judge", { OPENAI_API_KEY: key }, null],
    ["judge", { JUDGE_KEY: key, OPENAI_API_KEY: "another-key" }, "JUDGE_KEY"],
    ["service", { SERVICE_KEY: key, OPENAI_API_KEY: "another-key" }, "SERVICE_KEY"],
  ];
  test.each(cases)("of a %s in %j is sent, and written nowhere", async (kind, env, named) => {
    const { url, asked } = await listen(quoting(kind));
    const run = `key-of-${kind}-${named}`;
    const naming = named === null ? [] : [`reward_model.${kind}.api_key_env=${named}`];
    const { code, said } = await start(env, run, ...keysOf(kind, url), ...naming);
    expect({ code, said }).toMatchObject({ code: 0 });
    expect(new Set(asked.map(({ authorization }) => authorization))).toEqual(new Set([`Bearer ${key}`]));
    expect(said).not.toContain(key);
    const files = await readdir(yard.path(run), { recursive: true, withFileTypes: true });
    const names = files.filter((entry) => entry.isFile()).map((entry) => join(entry.parentPath, entry.name));
    expect(names.length).toBeGreaterThan(5);
    for (const name of names) expect([name, (await readFile(name)).includes(key)]).toEqual([name, false]);
  });

  test("of a service is never OPENAI_API_KEY", async () => {
    const { url, asked } = await listen(quoting("service"));
    expect(await start({ OPENAI_API_KEY: key }, "no-key", ...keysOf("service", url))).toMatchObject({ code: 0 });
    expect(new Set(asked.map(({ authorization }) => authorization))).toEqual(new Set([undefined]));
  });

  test.each(Object.keys(ways))("of a %s that is not set is refused by the name of its variable", async (kind) => {
    const naming = `reward_model.${kind}.api_key_env=NO_SUCH_KEY`;
    const { code, said } = await start({ OPENAI_API_KEY: key }, "unset", ...keysOf(kind, "http://127.0.0.1:9"), naming);
    expect(code).toBe(2);
    expect(said).toContain(
      `\`reward_model.${kind}.api_key_env\` names the environment variable NO_SUCH_KEY, and it is not set`,
    );
    const spaced = await start({ NO_SUCH_KEY: "two words" }, "unset", ...keysOf(kind, "http://127.0.0.1:9"), naming);
    expect(spaced).toEqual({ code: 2, said: expect.stringMatching(/NO_SUCH_KEY holds a space/) });
  });

  test("in the config itself is refused", async () => {
    const naming = `reward_model.judge.api_key_env=${key}`;
    const { code, said } = await start({}, "pasted", ...keysOf("judge", "http://127.0.0.1:9"), naming);
    expect({ code, said }).toEqual({ code: 2, said: expect.stringMatching(/the name of an environment variable/) });
  });

  test("that a server refuses: the message names the variable", async () => {
    const { url } = await listen(() => 401);
    const { code, said } = await start({ OPENAI_API_KEY: key }, "refused-key", ...keysOf("judge", url));
    expect({ code, said }).toEqual({ code: 2, said: expect.stringMatching(/status 401.*OPENAI_API_KEY/s) });
  });
});
