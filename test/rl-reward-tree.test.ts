/**
 * Rewards as a tree: a rule for the rows of one data source, two reward models and a judge for those of the other, in one
 * run. Laws: the score is the weighted sum of the parts run alone, the order of entries does not matter, and a resumed run
 * is an uninterrupted one.
 */
import { once } from "node:events";
import { writeFile } from "node:fs/promises";
import { createServer, type Server } from "node:http";
import { json as readJson } from "node:stream/consumers";
import { afterAll, beforeAll, describe, expect, test, vi } from "vitest";
import { main } from "../src/cli/main.ts";
import { parseRollouts } from "../src/run/rollouts.ts";
import { hasRay, python } from "./ray-yard.ts";
import { charConfig, Yard } from "./rl-yard.ts";

let yard: Yard;
let judge: Server;
let url: string;
/** How many times the judge was asked. */
let asked = 0;
/** Answers every call with this status, where it is set. */
let status: number | null = null;

const sevensIn = (text: string) => text.split("7").length - 1;

beforeAll(async () => {
  yard = await Yard.make();
  const score = { ...charConfig, architectures: ["LlamaForSequenceClassification"], num_labels: 1 };
  await yard.makeModel("kind", score, 5);
  await yard.makeModel("brief", score, 6);
  await writeFile(
    yard.path("rule.ts"),
    `import { defineReward, scorers } from "trainyard/reward";
    export const compute_score = defineReward(({ response }, { per = 1 }) => ({
      score: (response.split("7").length - 1) * Number(per),
      right: scorers.mathVerify({ response: "\\\\boxed{" + response.length + "}", groundTruth: "6" }),
    }));`,
  );
  judge = createServer(async (request, response) => {
    asked++;
    const body = (await readJson(request)) as { messages: { content: string }[] };
    if (status !== null) return void response.writeHead(status).end("no");
    const said = body.messages.at(-1)!.content;
    const content = `Score: ${said.length % 5}`;
    response.writeHead(200, { "content-type": "application/json" });
    response.end(JSON.stringify({ choices: [{ message: { role: "assistant", content } }] }));
  });
  await once(judge.listen(0, "127.0.0.1"), "listening");
  const address = judge.address();
  url = `http://127.0.0.1:${typeof address === "object" ? address?.port : 0}/v1`;
});
afterAll(async () => {
  judge.closeAllConnections();
  await new Promise((resolve) => judge.close(resolve));
  yard.remove();
});

const ppo = (run: string, ...overrides: readonly string[]) => yard.command(...yard.args(run, overrides));

/** What the names of the tree stand for. */
const named = () => [
  `custom_reward_function.path=${yard.path("rule.ts")}`,
  `reward.functions.half.path=${yard.path("rule.ts")}`,
  "reward.functions.half.reward_kwargs.per=0.5",
  `reward_model.model.path=${yard.path("kind")}`,
  `reward.models.brief.model.path=${yard.path("brief")}`,
  `reward.models.strict.judge.url=${url}`,
  "reward.models.strict.judge.model=j",
  'reward.models.strict.judge.template="{prompt}{response}"',
  `data.val_files=${yard.validation}`,
  "trainer.test_freq=2",
];
const odd = ["{use:model,weight:0.25}", "{use:model,name:brief,weight:-2}", "{use:judge,name:strict,weight:0.1}"];
const even = ["{use:function}", "{use:function,name:half,weight:3}", "{use:scorer,name:math_verify,weight:0}"];
const tree = () => [...named(), `reward.sources={even:[${even}],odd:[${odd}]}`];

type Logged = {
  readonly source: string;
  readonly response: string;
  readonly score: number | null;
  readonly extra: Readonly<Record<string, unknown>>;
};
/** The responses of a run in rollouts.jsonl, by line; of one kind where it is given. */
async function logged(run: string, only?: "train" | "val"): Promise<Logged[][]> {
  const { rollouts } = await yard.outcome(run);
  return rollouts
    .filter((line) => line !== "")
    .map((line) => parseRollouts(line)!)
    .filter(({ kind }) => only === undefined || kind === only)
    .map(({ groups }) => groups.flatMap(({ source, episodes }) => episodes.map((it) => ({ ...it, source }))));
}
const column = ({ extra }: Logged, name: string) => Number(extra[name]);

describe("rows of two data sources", () => {
  test("are scored each by its own parts, and every part is a column", async () => {
    expect(await ppo("tree", ...tree())).toMatchObject({ code: 0 });
    const episodes = (await logged("tree")).flat();
    expect(new Set(episodes.map(({ source }) => source))).toEqual(new Set(["even", "odd"]));
    for (const episode of episodes) {
      const { source, response, score } = episode;
      const parts = Object.keys(episode.extra).filter((name) => name.startsWith("reward/") && !name.endsWith("/right"));
      if (source === "even") {
        expect(parts.toSorted()).toEqual(["reward/function", "reward/half", "reward/math_verify"]);
        expect(score).toBeCloseTo(sevensIn(response) * (1 + 3 * 0.5), 12);
        expect(column(episode, "reward/function/right")).toBe(response.length === 6 ? 1 : 0);
      } else {
        expect(parts.toSorted()).toEqual(["reward/brief", "reward/model", "reward/strict"]);
        expect(episode.extra.judge_reply).toBe(`Score: ${column(episode, "reward/strict")}`);
        const [kind, brief, strict] = ["model", "brief", "strict"].map((name) => column(episode, `reward/${name}`));
        expect(score).toBeCloseTo(0.25 * kind! - 2 * brief! + 0.1 * strict!, 3); // of five digits
      }
    }
    const models = episodes.filter(({ source }) => source === "odd");
    expect(models.some((it) => column(it, "reward/model") !== column(it, "reward/brief"))).toBe(true);
  });

  test("each part's score is a validation metric of its data source", async () => {
    const metrics = (await yard.metrics("tree")).at(-1)!;
    expect(metrics["val-aux/even/reward/half/mean@1"]).toBeCloseTo(
      metrics["val-aux/even/reward/function/mean@1"]! / 2,
      6,
    );
    expect(metrics["val-aux/odd/reward/strict/mean@1"]).toBeGreaterThanOrEqual(0);
    expect(metrics["val-core/odd/reward/mean@1"]).toBeCloseTo(
      0.25 * metrics["val-aux/odd/reward/model/mean@1"]! -
        2 * metrics["val-aux/odd/reward/brief/mean@1"]! +
        0.1 * metrics["val-aux/odd/reward/strict/mean@1"]!,
      5,
    );
  });

  test("the score is the weighted sum of the parts run alone", async () => {
    const oneStep = ["trainer.total_training_steps=1", "trainer.save_freq=1"];
    const first = (await logged("tree", "train"))[0]!;
    const alone = ["{use:model}", "{use:model,name:brief}", "{use:judge,name:strict}"];
    const sums = new Map<string, number>();
    for (const [i, entry] of alone.entries()) {
      const run = `alone${i}`;
      expect(await ppo(run, ...named(), `reward.sources={'*':[${entry}]}`, ...oneStep)).toMatchObject({ code: 0 });
      const weight = [0.25, -2, 0.1][i]!;
      (await logged(run, "train"))[0]!.forEach(({ source, response, score }, at) => {
        const place = `${source} ${at} ${response}`;
        sums.set(place, (sums.get(place) ?? 0) + weight * score!);
      });
    }
    const ofModels = first.map((it, at) => ({ ...it, at })).filter(({ source }) => source === "odd");
    expect(ofModels.length).toBeGreaterThan(0);
    for (const { source, at, response, score } of ofModels)
      expect(score).toBeCloseTo(sums.get(`${source} ${at} ${response}`)!, 3);
  });

  test("the order of data sources and entries changes nothing", async () => {
    const sources = `reward.sources={'*':[${odd.toReversed()}],even:[${even.toReversed()}]}`;
    expect(await ppo("reversed", ...named(), sources)).toMatchObject({ code: 0 });
    const [given, reversed] = [await yard.outcome("tree"), await yard.outcome("reversed")];
    expect([reversed.lines, reversed.rollouts, reversed.files]).toEqual([given.lines, given.rollouts, given.files]);
  });

  test("a resumed run is an uninterrupted one", async () => {
    expect(await ppo("halves", ...tree(), "trainer.total_training_steps=2")).toMatchObject({ code: 0 });
    const further = [...tree(), "trainer.total_training_steps=4", "trainer.val_before_train=false"];
    expect(await ppo("halves", ...further)).toMatchObject({ code: 0 });
    expect(await ppo("whole", ...tree(), "trainer.total_training_steps=4")).toMatchObject({ code: 0 });
    const [halves, whole] = [await yard.outcome("halves"), await yard.outcome("whole")];
    expect([halves.lines, halves.rollouts, halves.files]).toEqual([whole.lines, whole.rollouts, whole.files]);
  });
});

describe.skipIf(!hasRay)("on Ray (needs Python with ray)", { timeout: 180_000 }, () => {
  test("the same tree gives the same scores", async () => {
    const ray = ["trainer.engine=ray", "trainer.n_gpus_per_node=2", "ray_kwargs.ray_init.num_cpus=3"];
    const env = { TRAINYARD_PYTHON: python };
    const { code, said } = await yard.commandWith(env, ...yard.args("on-ray", [...tree(), ...ray]));
    expect({ code, said }).toMatchObject({ code: 0 });
    // Before training, greedy responses are those of the same weights.
    const [here, there] = [(await logged("tree", "val"))[0]!, (await logged("on-ray", "val"))[0]!];
    expect(there.map(({ response }) => response)).toEqual(here.map(({ response }) => response));
    for (const [i, episode] of here.entries()) {
      const other = there[i]!;
      expect(other.score).toBeCloseTo(episode.score!, 3);
      expect(Object.keys(other.extra).toSorted()).toEqual(Object.keys(episode.extra).toSorted());
    }
  });
});

describe("before anything starts", () => {
  test("a data source that no entry covers is refused, with its row", async () => {
    const before = asked;
    const { code, said } = await ppo("uncovered", ...named(), `reward.sources={even:[${even}]}`);
    expect(code).toBe(2);
    expect(said).toMatch(
      /train\.jsonl, line 2: The data source "odd" has no entry in `reward\.sources`, which has even\./,
    );
    expect(said).toMatch(/Add one, or `\*` for all other data sources\./);
    expect(asked).toBe(before);
  });

  test("data validate says the same of each row", async () => {
    const said = vi.spyOn(process.stdout, "write").mockReturnValue(true);
    try {
      const code = await main(["data", "validate", yard.train, "reward.sources={even:[{use:scorer,name:math}]}"], {});
      expect(code).not.toBe(0);
      expect(said.mock.calls.join("")).toMatch(/The data source "odd" has no entry in\s+`reward\.sources`/);
    } finally {
      said.mockRestore();
    }
  });

  test("the dry run knows all models", async () => {
    const { code, said } = await ppo("planned", ...tree(), "--dry-run");
    expect(code).toBe(0);
    expect(said).toMatch(/reward model brief/);
    expect(said).toMatch(/reward model /);
  });
});

test("a part that fails leaves its samples without a score, or ends the run beyond the budget", async () => {
  status = 400;
  try {
    const keys = [
      ...tree(),
      "trainer.total_training_steps=1",
      "trainer.val_before_train=false",
      "trainer.test_freq=-1",
    ];
    const beyond = await ppo("beyond", ...keys);
    expect(beyond).toEqual({ code: 2, said: expect.stringMatching(/The judge at .* answered with status 400/) });
    expect(await ppo("within", ...keys, "reward.error_budget=1", "trainer.save_freq=1")).toMatchObject({ code: 0 });
    for (const { source, score } of (await logged("within")).flat()) expect(score === null).toBe(source === "odd");
  } finally {
    status = null;
  }
});
