/** `trainyard generate` as a whole: from the command line to the file, with a server of the tests. */
import { spawn } from "node:child_process";
import { existsSync } from "node:fs";
import { appendFile, readFile, writeFile } from "node:fs/promises";
import { fileURLToPath } from "node:url";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { readRows, writeRows } from "../src/data/files.ts";
import { answerTo, type FakeOptions, FakeServer, json } from "./openai-server.ts";
import { Child, pause, Sandbox } from "./sandbox.ts";

const launcher = fileURLToPath(new URL("../bin/trainyard.js", import.meta.url));

let sandbox: Sandbox;
beforeAll(async () => {
  sandbox = await Sandbox.make();
});
afterAll(() => sandbox.remove());

const open: FakeServer[] = [];
afterEach(async () => {
  for (const server of open.splice(0)) await server.close();
});

async function serve(options: FakeOptions = {}): Promise<FakeServer> {
  const server = await FakeServer.open(options);
  open.push(server);
  return server;
}

const chat = (text: string) => [{ role: "user", content: text }];
const rowsOf = (count: number) => Array.from({ length: count }, (_, i) => ({ prompt: chat(`question ${i}`), id: i }));

/** The arguments of a generation at a server; later ones win. */
function args(server: FakeServer, input: string, output: string, ...overrides: readonly string[]): string[] {
  const keys = [`data.path=${input}`, `data.output_path=${output}`, "model.path=m", `rollout.base_url=${server.url}`];
  return ["generate", ...keys, ...overrides];
}

const responsesOf = async (file: string) => (await readRows(file)).rows.map(({ values }) => values.responses);

describe("the output", () => {
  for (const [from, to] of [
    ["jsonl", "jsonl"],
    ["jsonl", "parquet"],
    ["parquet", "jsonl"],
    ["parquet", "parquet"],
  ] as const) {
    test(`of ${from} is ${to} with the same columns, in order, and n responses per row`, async () => {
      const input = sandbox.path(`in-${from}-${to}.${from}`);
      const output = sandbox.path(`out-${from}-${to}.${to}`);
      await writeRows(input, rowsOf(7));
      const server = await serve();
      const { code, said } = await sandbox.command(...args(server, input, output, "data.n_samples=3"));
      expect(code, said).toBe(0);
      const { rows, columns } = await readRows(output);
      expect(columns).toEqual(["prompt", "id", "responses"]);
      expect(rows.map(({ values }) => values.id)).toEqual([0, 1, 2, 3, 4, 5, 6]);
      for (const { values } of rows) {
        const asked = server.requests.find(
          ({ messages }) => JSON.stringify(messages) === JSON.stringify(values.prompt),
        );
        const expected = [0, 1, 2].map((i) => answerTo(values.prompt, Number(asked?.seed) + i).join(""));
        expect(values.responses).toEqual(expected);
      }
      expect(existsSync(`${output}.partial.jsonl`)).toBe(false);
    });
  }

  test("does not depend on how many rows are sampled at a time, and no more are", async () => {
    const input = await sandbox.writeLines("batches.jsonl", rowsOf(20));
    const files: string[] = [];
    for (const size of [1, 3, 50]) {
      const server = await serve({ delayMs: 5 });
      const output = sandbox.path(`batches-${size}.jsonl`);
      await sandbox.command(...args(server, input, output, `data.batch_size=${size}`));
      expect(server.mostInFlight).toBeLessThanOrEqual(size);
      files.push(await readFile(output, "utf8"));
    }
    expect(new Set(files).size).toBe(1);
  });

  test("has different responses for equal prompts and another seed", async () => {
    const input = await sandbox.writeLines("equal.jsonl", [{ prompt: "same" }, { prompt: "same" }]);
    const server = await serve();
    const outputs = [1, 2].map((seed) => sandbox.path(`equal-${seed}.jsonl`));
    for (const [i, output] of outputs.entries())
      await sandbox.command(...args(server, input, output, `rollout.seed=${i + 1}`));
    const all = (await Promise.all(outputs.map(responsesOf))).flat(2);
    expect(new Set(all).size).toBe(4);
  });
});

describe("a run that is stopped", () => {
  test("by kill -9, several times, ends with the file of an uninterrupted one and samples no finished row again", async () => {
    const input = await sandbox.writeLines("killed.jsonl", rowsOf(60));
    const [broken, whole] = [sandbox.path("broken.jsonl"), sandbox.path("whole.jsonl")];
    const server = await serve({ delayMs: 40 });
    const sizes = ["data.batch_size=4", "data.n_samples=2"];
    let kills = 0;
    for (let code: unknown = null; code !== 0; ) {
      const child = new Child([process.execPath, launcher, ...args(server, input, broken, ...sizes)], sandbox.root);
      const before = server.requests.length;
      while (child.isRunning && server.requests.length < before + 20) await pause(2);
      if (child.isRunning && kills < 3) {
        kills++;
        child.process.kill("SIGKILL");
      }
      code = await child.ended;
      if (code === 0) expect(child.said).toMatch(/Going on: \d+ of 60 rows are done/);
    }
    expect(kills).toBeGreaterThanOrEqual(2);
    // Only rows that were being sampled at the moment of a kill were sampled twice.
    expect(server.requests.length).toBeLessThanOrEqual(60 + 4 * kills);
    const quick = await serve();
    await sandbox.command(...args(quick, input, whole, ...sizes));
    expect(await readFile(broken, "utf8")).toBe(await readFile(whole, "utf8"));
    expect(existsSync(`${broken}.partial.jsonl`)).toBe(false);
  });

  test("by Ctrl-C exits with 130, says how to go on, and goes on", async () => {
    const input = await sandbox.writeLines("interrupted.jsonl", rowsOf(40));
    const output = sandbox.path("interrupted-out.jsonl");
    const server = await serve({ delayMs: 30 });
    const command = args(server, input, output, "data.batch_size=2");
    const child = new Child([process.execPath, launcher, ...command], sandbox.root);
    while (child.isRunning && server.requests.length < 10) await pause(2);
    child.process.kill("SIGINT");
    expect(await child.ended).toBe(130);
    expect(child.said).toMatch(/\d+ of 40 rows are done and kept in .*\.partial\.jsonl\. The same command goes on/);
    expect(existsSync(output)).toBe(false);
    const { code, said } = await sandbox.command(...command);
    expect({ code, said }).toMatchObject({ code: 0, said: expect.stringMatching(/Going on: \d+ of 40 rows/) });
    expect(await responsesOf(output)).toHaveLength(40);
  });

  test("in the middle of a line loses only that line", async () => {
    const input = await sandbox.writeLines("torn.jsonl", rowsOf(6));
    const output = sandbox.path("torn-out.jsonl");
    const refuse: FakeOptions["disturb"] = ({ messages }) =>
      JSON.stringify(messages).includes("question 5") ? (response) => json(response, 400, { error: "no" }) : null;
    const command = (server: FakeServer) => args(server, input, output, "data.batch_size=1");
    expect((await sandbox.command(...command(await serve({ disturb: refuse })))).code).toBe(2);
    const journal = `${output}.partial.jsonl`;
    const lines = (await readFile(journal, "utf8")).split("\n");
    await writeFile(journal, lines.slice(0, 4).join("\n"));
    await appendFile(journal, '\n{"key":"half a li');
    const server = await serve();
    expect((await sandbox.command(...command(server))).code).toBe(0);
    expect(server.requests).toHaveLength(3);
    expect(await responsesOf(output)).toHaveLength(6);
  });

  test("by a row that the server refuses keeps the others when that row is corrected", async () => {
    const rows = rowsOf(5);
    const input = await sandbox.writeLines("corrected.jsonl", rows);
    const output = sandbox.path("corrected-out.jsonl");
    const server = await serve({
      disturb: ({ messages }) =>
        JSON.stringify(messages).includes("question 2") ? (response) => json(response, 400, { error: "bad" }) : null,
    });
    const command = args(server, input, output, "data.batch_size=1");
    const { code, said } = await sandbox.command(...command);
    expect(code).toBe(2);
    expect(said).toMatch(
      /2 of 5 rows are done and kept.*\n.*corrected\.jsonl, line 3: http.* refuses the request \(400\): bad/,
    );
    await sandbox.writeLines(
      "corrected.jsonl",
      rows.filter(({ id }) => id !== 2),
    );
    expect((await sandbox.command(...command)).code).toBe(0);
    expect((await readRows(output)).rows.map(({ values }) => values.id)).toEqual([0, 1, 3, 4]);
    expect(server.requests).toHaveLength(5);
  });

  test("is not mixed with a run of other settings or other rows", async () => {
    const input = await sandbox.writeLines("mixed.jsonl", rowsOf(5));
    const output = sandbox.path("mixed-out.jsonl");
    const stop: FakeOptions["disturb"] = (_, count) => (count > 3 ? (response) => json(response, 400, "no") : null);
    const server = await serve({ disturb: stop });
    await sandbox.command(...args(server, input, output, "data.batch_size=1"));
    const other = await sandbox.command(...args(server, input, output, "rollout.temperature=0.5"));
    expect(other.code).toBe(2);
    expect(other.said).toMatch(/with other settings: `rollout\.temperature` was 1 and is 0\.5\. Go on with the same/);
    const elsewhere = await sandbox.writeLines("elsewhere.jsonl", [{ prompt: "something else" }]);
    const rows = await sandbox.command(...args(server, elsewhere, output));
    expect(rows.said).toMatch(/holds 3 finished rows, and none of them has a prompt of this data/);
  });
});

describe("a model in this process", () => {
  const keys = (input: string, output: string, ...overrides: readonly string[]) => [
    "generate",
    `model.path=${sandbox.model}`,
    `data.path=${input}`,
    `data.output_path=${output}`,
    "data.n_samples=2",
    "rollout.response_length=16",
    "rollout.prompt_length=128",
    "trainer.threads=2",
    ...overrides,
  ];

  test("that is killed and started again ends with the file of an uninterrupted run, however many rows are sampled together", async () => {
    const input = await sandbox.writeLines("local.jsonl", rowsOf(24));
    const [broken, whole] = [sandbox.path("local-broken.jsonl"), sandbox.path("local-whole.jsonl")];
    const child = new Child([process.execPath, launcher, ...keys(input, broken, "data.batch_size=3")], sandbox.root);
    const journaled = async () =>
      (await readFile(`${broken}.partial.jsonl`, "utf8").catch(() => "")).split("\n").length - 2;
    while (child.isRunning && (await journaled()) < 5) await pause(2);
    child.process.kill("SIGKILL");
    await child.ended;
    expect(await journaled()).toBeLessThan(24);
    expect((await sandbox.command(...keys(input, broken, "data.batch_size=8"))).said).toMatch(
      /Going on: \d+ of 24 rows/,
    );
    expect((await sandbox.command(...keys(input, whole))).code).toBe(0);
    expect(await readFile(broken, "utf8")).toBe(await readFile(whole, "utf8"));
    expect(new Set((await responsesOf(whole)).flat()).size).toBeGreaterThan(24);
  });

  test("samples the same texts behind `trainyard serve`, by messages and by token ids", async () => {
    const input = await sandbox.writeLines("served.jsonl", rowsOf(4));
    const server = spawn(process.execPath, [launcher, "serve", sandbox.model, "--port", "0", "--threads", "2"]);
    try {
      const url = await new Promise<string>((resolve) => {
        server.stdout.on("data", (chunk) => {
          const address = /http:\/\/[\d.:]+\/v1/.exec(String(chunk))?.[0];
          if (address !== undefined) resolve(address);
        });
      });
      const files: string[] = [];
      const served = [`rollout.base_url=${url}`, "model.path=model"];
      const ways = [[], served, [...served, "rollout.endpoint=completions", `model.tokenizer_path=${sandbox.model}`]];
      for (const [i, way] of ways.entries()) {
        const output = sandbox.path(`served-${i}.jsonl`);
        const { code, said } = await sandbox.command(
          ...keys(input, output, "rollout.top_k=20", "rollout.top_p=0.9", ...way),
        );
        expect(code, said).toBe(0);
        files.push(await readFile(output, "utf8"));
      }
      expect(files[1]).toBe(files[0]);
      expect(files[2]).toBe(files[0]);
    } finally {
      server.kill("SIGTERM");
    }
  });

  test.each([
    ["rollout.prompt_length=4", /local\.jsonl, line 1: the prompt has \d+ tokens, and `rollout\.prompt_length` is 4/],
    ["rollout.max_model_len=129", null],
    ["model.path=nowhere", /There is no folder "nowhere"/],
    ["trainer.device=cuda", /cuda/],
  ])("with %s says what is wrong, if anything is", async (override, message) => {
    const input = await sandbox.writeLines("local.jsonl", rowsOf(3));
    const { code, said } = await sandbox.command(...keys(input, sandbox.path("local-bad.jsonl"), override));
    expect(code, said).toBe(message === null ? 0 : 2);
    if (message !== null) expect(said).toMatch(message);
  });
});

describe("a mistake is one message, before anything is sampled", () => {
  const cases: readonly [string, readonly object[], readonly string[], RegExp][] = [
    ["no such column", [{ question: "x" }], [], /line 1: there is no column `prompt`\. .*`question`/],
    [
      "a prompt that is a number",
      [{ prompt: 3 }],
      [],
      /line 1, column `prompt`: expected a chat .* found the number 3/,
    ],
    ["a prompt without messages", [{ prompt: [] }], [], /expected a chat of at least one message/],
    [
      "columns that parquet cannot hold",
      [
        { prompt: "a", x: 1 },
        { prompt: "b", x: "1" },
      ],
      ["data.output_path=OUT.parquet"],
      /row 2, column `x` is the text "1", where a parquet column needs one type/,
    ],
    [
      "an output without format",
      [{ prompt: "a" }],
      ["data.output_path=OUT.txt"],
      /mistake-out\.txt\. Its extension is the format/,
    ],
    [
      "greedy samples that are all the same",
      [{ prompt: "a" }],
      ["rollout.temperature=0", "data.n_samples=2"],
      /all responses of a prompt would be the same/,
    ],
    ["output over input", [{ prompt: "a" }], ["data.output_path=INPUT"], /which `data\.path` reads from/],
  ];
  for (const [name, rows, overrides, message] of cases) {
    test(name, async () => {
      const server = await serve();
      const input = await sandbox.writeLines("mistake.jsonl", rows);
      const keys = overrides.map((key) => key.replace("OUT", sandbox.path("mistake-out")).replace("INPUT", input));
      const { code, said } = await sandbox.command(...args(server, input, sandbox.path("mistake-out.jsonl"), ...keys));
      expect(said).toMatch(message);
      expect(said).not.toMatch(/\n\s+at /);
      expect({ code, asked: server.requests.length }).toEqual({ code: 2, asked: 0 });
    });
  }

  test("a folder that another process writes to", async () => {
    const input = await sandbox.writeLines("locked.jsonl", rowsOf(30));
    const server = await serve({ delayMs: 50 });
    const command = args(server, input, sandbox.path("locked-out.jsonl"), "data.batch_size=1");
    const child = new Child([process.execPath, launcher, ...command], sandbox.root);
    while (child.isRunning && server.requests.length < 2) await pause(2);
    const { code, said } = await sandbox.command(...command);
    child.process.kill("SIGKILL");
    await child.ended;
    expect(said).toMatch(/locked-out\.jsonl is being written by process \d+/);
    expect(code).toBe(2);
  });
});
