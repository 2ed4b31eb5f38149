/** `trainyard chat` and `trainyard eval` as programs: what goes to stdout and stderr, and the exit code. */
import { spawn } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { answerTo, type FakeOptions, FakeServer } from "../../test/openai-server.ts";
import { Sandbox } from "../../test/sandbox.ts";

const launcher = fileURLToPath(new URL("../../bin/trainyard.js", import.meta.url));
const folder = mkdtempSync(join(tmpdir(), "trainyard-verbs-"));
afterAll(() => rmSync(folder, { recursive: true }));

const open: FakeServer[] = [];
afterEach(async () => {
  for (const server of open.splice(0)) await server.close();
});

async function serve(options: FakeOptions = {}): Promise<FakeServer> {
  const server = await FakeServer.open(options);
  open.push(server);
  return server;
}

/** Start a command with these lines on its stdin. */
function start(input: string, ...args: readonly string[]) {
  const child = spawn(process.execPath, [launcher, ...args], { cwd: folder });
  const said = { stdout: "", stderr: "" };
  child.stdout.on("data", (chunk) => (said.stdout += chunk));
  child.stderr.on("data", (chunk) => (said.stderr += chunk));
  child.stdin.end(input);
  const ended = new Promise<number | null>((resolve) => child.on("close", (code) => resolve(code)));
  return { child, said, ended: ended.then((code) => ({ code, ...said })) };
}

describe("chat", () => {
  test("answers one question per line of a pipe; stdout has the answers alone", async () => {
    const { url, requests } = await serve();
    const { code, stdout, stderr } = await start("one\n\n/reset\ntwo\n/help\n", "chat", "--url", url, "--seed", "7")
      .ended;
    const answers = ["one", "two"].map((content) => answerTo([{ role: "user", content }], 7).join(""));
    expect({ code, stdout }).toEqual({ code: 0, stdout: answers.map((answer) => `${answer}\n`).join("") });
    expect(stderr).toMatch(/^Talking to m at .*\n3 tokens, [\d.]+ tokens\/s\nThe conversation is empty\.\n/);
    expect(requests).toHaveLength(2);
  });

  test("is ended by Ctrl-C with 130", async () => {
    const server = await serve({ delayMs: 20_000 });
    const { child, ended } = start("one\ntwo\n", "chat", "--url", server.url);
    while (server.requests.length === 0) await new Promise((resolve) => setTimeout(resolve, 5));
    child.kill("SIGINT");
    expect((await ended).code).toBe(130);
  });

  test.each([
    [[], /`trainyard chat` needs a model/],
    [["a", "b"], /talks to one model, and a and b are several/],
    [["a", "--temperatur", "1"], /^`--temperatur` is no option\. Did you mean --temperature\?/],
    [["a", "--temperature", "hot"], /`--temperature` is "hot"; it should be a number of at least 0/],
    [["a", "--max-tokens", "1.5"], /it should be a whole number of at least 1/],
    [["a", "--device", "tpu"], /`--device` is "tpu"/],
    [["nowhere"], /There is no folder "nowhere"/],
    [["--url", "http://127.0.0.1:9/v1"], /127\.0\.0\.1:9\/v1 does not answer/],
  ])("%j is one message and exit code 2", async (args, message) => {
    const { code, stdout, stderr } = await start("", "chat", ...args).ended;
    expect(stderr.trimEnd()).toMatch(message);
    expect(stderr).not.toMatch(/\n\s+at /);
    expect({ code, stdout }).toEqual({ code: 2, stdout: "" });
  });
});

describe("chat with a model of this machine", () => {
  let sandbox: Sandbox;
  beforeAll(async () => {
    sandbox = await Sandbox.make();
  });
  afterAll(() => sandbox.remove());
  const chat = (input: string, ...args: readonly string[]) =>
    start(input, "chat", sandbox.model, "--max-tokens", "12", "--threads", "2", ...args).ended;

  test("gives the same answers for the same seed, and others for another", async () => {
    const [first, second, other] = [
      await chat("hello\n", "--seed", "1"),
      await chat("hello\n", "--seed", "1"),
      await chat("hello\n", "--seed", "2"),
    ];
    expect(first).toMatchObject({ code: 0, stdout: second.stdout });
    expect(first.stdout.length).toBeGreaterThan(1);
    expect(other.stdout).not.toBe(first.stdout);
    expect(first.stderr).toMatch(/12 tokens, [\d.]+ tokens\/s; cut at --max-tokens 12\n$/);
  });

  test("refuses a question that does not fit the context, and says so", async () => {
    const { code, stderr } = await chat(`${"long question ".repeat(100)}\n`);
    expect(stderr).toMatch(
      /The prompt has \d+ tokens, and the model's context is 256: there is no room .* was not added/,
    );
    expect(code).toBe(2);
  });

  test("needs a chat template", async () => {
    const plain = await sandbox.copyModel("plain");
    rmSync(join(plain, "chat_template.jinja"));
    const { code, stderr } = await start("hello\n", "chat", plain).ended;
    expect(stderr).toMatch(/plain has no chat template .* Use an instruct or chat version of the model/);
    expect(code).toBe(2);
  });
});

describe("eval", () => {
  const rows = [
    { data_source: "sums", reward_model: { ground_truth: "2" }, responses: ["2", "3"], extra_info: { level: "easy" } },
    { data_source: "sums", reward_model: { ground_truth: "5" }, responses: ["5", "5"], extra_info: { level: "hard" } },
  ];
  writeFileSync(join(folder, "rows.jsonl"), rows.map((row) => `${JSON.stringify(row)}\n`).join(""));
  writeFileSync(
    join(folder, "reward.ts"),
    "export const compute_score = ({ response, groundTruth }) => response === groundTruth;",
  );
  const args = [
    "eval",
    "data.path=rows.jsonl",
    "custom_reward_function.path=reward.ts",
    "data.group_key=extra_info.level",
  ];

  test("prints a table, or the same figures as JSON, and writes every score", async () => {
    const table = await start("", ...args).ended;
    expect(table).toMatchObject({
      code: 0,
      stdout: [
        "data source  rows  responses  test_score  pass@1  pass@2",
        "sums            2          4      0.7500  0.7500  1.0000",
        "  easy          1          2      0.5000  0.5000  1.0000",
        "  hard          1          2      1.0000  1.0000  1.0000",
        "",
      ].join("\n"),
    });
    const json = await start("", ...args, "--json", "data.output_path=scores.json").ended;
    const { metrics } = JSON.parse(json.stdout);
    expect(metrics).toMatchObject({ "test_score/sums": 0.75, "test_pass@2/sums": 1, "test_score/sums/easy": 0.5 });
    const written = JSON.parse(readFileSync(join(folder, "scores.json"), "utf8"));
    expect(written.metrics).toEqual(metrics);
    expect(written.rows[0]).toMatchObject({
      row: 1,
      dataSource: "sums",
      group: "easy",
      scores: [{ score: 1 }, { score: 0 }],
    });
  });

  test.each([
    [["data.path=nothing.jsonl"], /nothing\.jsonl does not exist/],
    [["data.response_key=answers"], /rows\.jsonl, line 1: there is no column `answers`\. .*`responses`/],
    [
      ["custom_reward_function.path=missing.ts"],
      /`custom_reward_function\.path` is missing\.ts, and there is no such file/,
    ],
    [["data.group_key=levl"], /there is no column `levl`/],
  ])("%j is one message and exit code 2", async (overrides, message) => {
    const { code, stdout, stderr } = await start("", ...args, ...overrides).ended;
    expect(stderr).toMatch(message);
    expect({ code, stdout }).toEqual({ code: 2, stdout: "" });
  });
});
