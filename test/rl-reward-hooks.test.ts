/**
 * What a reward function gets beside its sample, and who decides what becomes of its score: the router in front of a
 * judge's servers, the columns that verl adds to `extra_info`, and reward managers in files.
 */
import { once } from "node:events";
import { writeFile } from "node:fs/promises";
import { createServer, type Server } from "node:http";
import { dirname } from "node:path";
import { json as readJson } from "node:stream/consumers";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { parseRollouts } from "../src/run/rollouts.ts";
import { Yard } from "./rl-yard.ts";

/** An interpreter with transformers, whose folder also has `python3`; what needs Python is skipped without one. */
const python = process.env.TRAINYARD_TEST_PYTHON ?? "";
if (python !== "") process.env.PATH = `${dirname(python)}:${process.env.PATH}`;

let yard: Yard;
const servers: Server[] = [];
beforeAll(async () => {
  yard = await Yard.make();
});
afterAll(async () => {
  for (const server of servers) {
    server.closeAllConnections();
    await new Promise((resolve) => server.close(resolve));
  }
  yard.remove();
});

const sevensIn = (text: string) => text.split("7").length - 1;
const ppo = (run: string, ...overrides: readonly string[]) => yard.command(...yard.args(run, overrides));
const episodesOf = async (run: string) =>
  (await yard.outcome(run)).rollouts
    .filter((line) => line !== "")
    .flatMap((line) => parseRollouts(line)!.groups.flatMap(({ episodes }) => episodes));

/** A chat model that counts sevens, or answers with a status. */
async function judge(status: number | null = null): Promise<{ url: string; asked: string[] }> {
  const asked: string[] = [];
  const server = createServer(async (request, response) => {
    asked.push(request.url ?? "");
    const { messages } = (await readJson(request)) as { messages: { content: string }[] };
    if (status !== null) return void response.writeHead(status).end("not now");
    const content = `Score: ${sevensIn(messages.at(-1)!.content)}`;
    response.writeHead(200, { "content-type": "application/json" });
    response.end(JSON.stringify({ choices: [{ message: { role: "assistant", content } }] }));
  });
  servers.push(server);
  await once(server.listen(0, "127.0.0.1"), "listening");
  const address = server.address();
  return { url: `http://127.0.0.1:${typeof address === "object" ? address?.port : 0}`, asked };
}

describe("several servers of a judge", () => {
  test("share the calls; one that fails changes nothing", async () => {
    const [a, b, broken] = [await judge(), await judge(), await judge(503)];
    const keys = ["reward_model.judge.model=j", 'reward_model.judge.template="{response}"'];
    expect(await ppo("one", `reward_model.judge.url=${a.url}/v1`, ...keys)).toMatchObject({ code: 0 });
    const before = a.asked.length;
    const urls = [broken, a, b].map(({ url }) => `"${url}/v1"`).join(",");
    const { code, said } = await ppo("three", `reward_model.judge.url=[${urls}]`, ...keys);
    expect({ code, said }).toEqual({ code: 0, said: expect.stringMatching(/answered with status 503/) });
    expect(a.asked.length).toBeGreaterThan(before);
    expect(b.asked.length).toBeGreaterThan(0);
    expect(a.asked.length - before + b.asked.length).toBe(2 * 16);
    const [one, three] = [await yard.outcome("one"), await yard.outcome("three")];
    expect([three.lines, three.rollouts, three.files]).toEqual([one.lines, one.rollouts, one.files]);
  });
});

describe("a function beside a judge's address", { timeout: 180_000 }, () => {
  // In Python it may wait for the import of transformers.
  const files = {
    ts: `export async function compute_score({ response, rewardRouterAddress, rewardModelTokenizer, extraInfo }) {
      const answer = await fetch("http://" + rewardRouterAddress + "/v1/chat/completions", {
        method: "POST",
        body: JSON.stringify({ messages: [{ role: "user", content: response }] }),
      });
      const { choices } = await answer.json();
      const score = Number(choices[0].message.content.split(" ")[1]);
      return { score, tokenizer: rewardModelTokenizer, turns: extraInfo.num_turns, given: extraInfo.rollout_reward_scores };
    }`,
    py: `import json, urllib.request
def compute_score(data_source, solution_str, ground_truth, extra_info, reward_router_address, reward_model_tokenizer):
    body = json.dumps({"messages": [{"role": "user", "content": solution_str}]}).encode()
    with urllib.request.urlopen(f"http://{reward_router_address}/v1/chat/completions", body) as answer:
        content = json.load(answer)["choices"][0]["message"]["content"]
    return {"score": float(content.split(" ")[1]), "turns": extra_info["num_turns"], "given": extra_info["rollout_reward_scores"], "tokenizer": len(reward_model_tokenizer)}
`,
  };
  const kinds = Object.entries(files).filter(([kind]) => kind === "ts" || python !== "");
  test.each(kinds)("gets one address for all servers, in %s", async (kind, text) => {
    const file = yard.path(`asks.${kind}`);
    await writeFile(file, text);
    const [a, b] = [await judge(), await judge()];
    const { code, said } = await ppo(
      `asked-${kind}`,
      `custom_reward_function.path=${file}`,
      `reward_model.judge.url=["${a.url}/v1","${b.url}/v1"]`,
      `reward_model.model.path=${yard.model}`,
    );
    expect({ code, said }).toMatchObject({ code: 0 });
    expect(a.asked.length + b.asked.length).toBe(2 * 16);
    expect(Math.min(a.asked.length, b.asked.length)).toBeGreaterThan(0);
    for (const { response, score, extra } of await episodesOf(`asked-${kind}`)) {
      expect(score).toBe(sevensIn(response));
      expect(extra).toMatchObject({ turns: 2, given: {} });
      expect(extra.tokenizer).toBe(kind === "ts" ? yard.model : 16);
    }
  });

  test.skipIf(python === "")("verl's keyword arguments go only to functions that take them", async () => {
    const file = yard.path("plain.py");
    await writeFile(file, "def compute_score(data_source, solution_str, ground_truth, extra_info):\n    return 1.0\n");
    const { url } = await judge();
    const keys = [`custom_reward_function.path=${file}`, `reward_model.judge.url=${url}`];
    expect(await ppo("plain", ...keys, "trainer.total_training_steps=1", "trainer.save_freq=1")).toMatchObject({
      code: 0,
    });
  });
});

test("extra_info keeps what the row says", async () => {
  const file = yard.path("turns.ts");
  await writeFile(
    file,
    "export const compute_score = ({ extraInfo }) => ({ score: 1, turns: extraInfo.num_turns, index: extraInfo.index });",
  );
  const rows = Array.from({ length: 16 }, (_, i) => ({
    prompt: `${i % 10},1:`,
    data_source: "s",
    extra_info: { index: i, ...(i % 2 === 0 && { num_turns: 9 }) },
  }));
  const train = yard.path("turns.jsonl");
  await yard.writeLines("turns.jsonl", rows);
  expect(await ppo("turns", `data.train_files=${train}`, `custom_reward_function.path=${file}`)).toMatchObject({
    code: 0,
  });
  const episodes = await episodesOf("turns");
  for (const { extra } of episodes) expect(extra.turns).toBe(Number(extra.index) % 2 === 0 ? 9 : 2);
});

describe("a reward manager in a file", () => {
  const manager = (name: string) => [
    "reward_manager.source=importlib",
    `reward_manager.module.path=${yard.path("manager.ts")}`,
    `reward_manager.name=${name}`,
  ];
  const custom = () => `custom_reward_function.path=${yard.path("count.ts")}`;
  beforeAll(async () => {
    await writeFile(
      yard.path("count.ts"),
      `export const compute_score = (input) => {
        const one = ({ response }) => {
          if (response === "") throw new Error("an empty response");
          return { score: response.split("7").length - 1, calls: Array.isArray(input) ? input.length : 1 };
        };
        return Array.isArray(input) ? input.map(one) : one(input);
      };`,
    );
    const define = (text: string) => `export const clipped = ${text}({
        before: ({ response }) => (response.length < 3 ? { score: -1, skipped: 1 } : null),
        after: ({ score, extra }, { responseLength }) => ({ ...extra, score: Math.min(1, score) - 0.01 * responseLength, raw: score }),
      });
      export const together = ${text}({ callsInBatches: true });
      export const broken = ${text}({ after: () => Number.NaN });
      export const other = 3;`;
    await writeFile(yard.path("manager.ts"), define(""));
    await writeFile(
      yard.path("defined.ts"),
      `import { defineRewardManager } from "trainyard";\n${define("defineRewardManager")}`,
    );
  });

  test("decides which samples are scored and what becomes of scores", async () => {
    const keys = [custom(), ...manager("clipped"), "reward.error_budget=0"];
    const { code, said } = await ppo("managed", ...keys);
    expect({ code, said }).toMatchObject({ code: 0 });
    for (const { response, score, extra, tokens } of await episodesOf("managed")) {
      if (response.length < 3) expect([score, extra]).toEqual([-1, { skipped: 1 }]);
      else {
        expect(score).toBeCloseTo(Math.min(1, sevensIn(response)) - 0.01 * tokens.length, 4);
        expect(extra).toEqual({ calls: 1, raw: sevensIn(response) });
      }
    }
    // The real command, whose files may import trainyard.
    const child = yard.startSft("defined", ...keys, `reward_manager.module.path=${yard.path("defined.ts")}`);
    expect([await child.ended, child.said]).toEqual([0, expect.any(String)]);
    expect((await yard.outcome("defined")).files).toEqual((await yard.outcome("managed")).files);
  });

  test("may ask for one call with all samples of a step", async () => {
    expect(await ppo("together", custom(), ...manager("together"), "reward.error_budget=1")).toMatchObject({ code: 0 });
    for (const { score, extra } of await episodesOf("together")) if (score !== null) expect(extra.calls).toBe(16);
  });

  const refusals: readonly (readonly [what: string, keys: () => readonly string[], says: RegExp])[] = [
    [
      "a value that is no reward",
      () => [...manager("broken"), "reward.error_budget=1"],
      /manager\.ts: `after` returned NaN/,
    ],
    [
      "no such export",
      () => manager("other"),
      /has no reward manager `other`.*It exports (`\w+`, ){3}`\w+`\. Write it in TypeScript/,
    ],
    ["no file", () => ["reward_manager.source=importlib"], /`reward_manager\.module\.path` names no file/],
    [
      "Python",
      () => ["reward_manager.source=importlib", "reward_manager.module.path=manager.py", "reward_manager.name=My"],
      /Python classes are not loaded\. Write it in TypeScript: .*defineRewardManager/,
    ],
  ];
  test.each(refusals)("%s is refused", async (_, keys, says) => {
    expect(await ppo("refused", custom(), ...keys())).toEqual({ code: 2, said: expect.stringMatching(says) });
  });
});
