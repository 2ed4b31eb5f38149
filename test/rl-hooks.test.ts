/**
 * The hooks of the data: samplers, datasets and data generators in files of the user, for `trainyard ppo`.
 *
 * The files note what they are told in a file of their own, so that tests see the calls. A resumed run must take the same
 * rows as one that was not interrupted, and end with the same bytes.
 */
import { readFile, writeFile } from "node:fs/promises";
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { prompt, Yard } from "./rl-yard.ts";

const library = fileURLToPath(new URL("../src/index.ts", import.meta.url));

/** Write a hook; runs in this process take the package from the sources. */
async function write(name: string, text: string): Promise<string> {
  await writeFile(yard.path(name), text.replace('"trainyard"', JSON.stringify(library)));
  return yard.path(name);
}

let yard: Yard;
beforeAll(async () => {
  yard = await Yard.make();
  await writeFile(yard.path("reward.ts"), reward);
  for (const [name, text] of Object.entries(files)) await write(name, text);
});
afterAll(() => yard.remove());

const reward = "export const compute_score = ({ response }) => (response.split('7').length - 1) / 6;\n";

/** From the last row to the first, four at a time; from the score on it is told, it goes on by one row more or less. */
const backwards = `
import { appendFileSync } from "node:fs";
import { defineSampler } from "trainyard";

export default defineSampler({
  state: { position: 0, means: [] as number[] },
  next(state, { rows, batchSize, step, random }) {
    const first = state.position;
    state.position += batchSize + Math.floor(random() * 2);
    appendFileSync(process.env.HOOK_LOG ?? "/dev/null", JSON.stringify({ next: step, rows: rows.length, first }) + "\\n");
    return Array.from({ length: batchSize }, (_, i) => rows.length - 1 - ((first + i) % rows.length));
  },
  async update(state, { step, groups, metrics }) {
    const scores = groups.flatMap(({ responses }) => responses.map(({ score }) => score ?? 0));
    state.means.push(scores.reduce((sum, score) => sum + score, 0) / scores.length);
    state.position += metrics["critic/score/mean"]! > 0.1 ? 1 : 0;
    appendFileSync(process.env.HOOK_LOG ?? "/dev/null", JSON.stringify({ update: step, groups, metrics }) + "\\n");
  },
});

export const forwards = defineSampler({
  state: {},
  next: (_, { batchSize, step }) => Array.from({ length: batchSize }, (_, i) => (step - 1) * batchSize + i),
});

export const notASampler = 3;
`;

/** After each step one row for the prompt with the best score, and its mirror. */
const generator = `
import { defineDataGenerator } from "trainyard";

export default defineDataGenerator({
  state: { made: 0 },
  generate(state, { groups, step, rows }) {
    const best = groups.toSorted((a, b) => (b.responses[0]?.score ?? 0) - (a.responses[0]?.score ?? 0))[0]!;
    state.made += 4;
    return Array.from({ length: 4 }, (_, i) => ({
      prompt: [String(best.row.prompt).slice(0, 1), (step + i) % 10, ":"].join(""),
      data_source: "made",
      reward_model: { ground_truth: [step, i, rows.length].join() },
    }));
  },
});
`;

const dataset = `
import { readFile } from "node:fs/promises";
import { defineDataset } from "trainyard";

export default defineDataset(async function* ({ split, files, tokenizer, config }) {
  if (split === "val") {
    yield { prompt: "9,9:", data_source: "held-out", reward_model: { ground_truth: "9" } };
    return;
  }
  for (const file of files)
    for (const line of (await readFile(file, "utf8")).trim().split("\\n")) {
      const row = JSON.parse(line);
      if (row.data_source === "even") yield { ...row, size: tokenizer.encode(row.prompt).length, key: config.prompt_key };
    }
});
export const numbers = defineDataset(({ split, files }) =>
  Array.from({ length: split === "val" ? 0 : 8 + files.length }, (_, i) => ({ prompt: String(i) + ":" })));
export const empty = defineDataset(() => []);
export const words = defineDataset(() => ["a", "b"] as never);
export const nothing = defineDataset(() => undefined as never);
export const broken = defineDataset(() => [{ prompt: 3 }]);
`;

const files = { "backwards.ts": backwards, "generator.ts": generator, "dataset.ts": dataset };

const ppo = (run: string, ...keys: readonly string[]) =>
  yard.command(...yard.args(run, [`custom_reward_function.path=${yard.path("reward.ts")}`, ...keys]));

/** All prompts of the steps of a run, as rollouts.jsonl has them, sorted within a step. */
async function trained(run: string): Promise<string[][]> {
  const lines = (await readFile(yard.path(run, "rollouts.jsonl"), "utf8")).trim().split("\n");
  const records = lines.map((line) => JSON.parse(line)).filter(({ kind }) => kind === "train");
  return records.map(({ groups }) => groups.map(({ truth }: { truth: string }) => truth).sort());
}

describe("a sampler", () => {
  test("decides the rows of each step, and is told once what came of them", async () => {
    const log = yard.path("calls.jsonl");
    process.env.HOOK_LOG = log;
    const said = await ppo(
      "sampled",
      `data.sampler.class_path=${yard.path("backwards.ts")}`,
      "data.shuffle=true",
      "trainer.total_training_steps=3",
      "trainer.logged_tokens=100000",
    ).finally(() => delete process.env.HOOK_LOG);
    expect([said.code, said.said]).toEqual([0, expect.any(String)]);
    const calls = (await readFile(log, "utf8"))
      .trim()
      .split("\n")
      .map((line) => JSON.parse(line));
    expect(calls.map((call) => Object.keys(call)[0])).toEqual(["next", "update", "next", "update", "next", "update"]);
    const metrics = await yard.metrics("sampled");
    const steps = await trained("sampled");
    for (const step of [1, 2, 3]) {
      const [next, update] = calls.slice(2 * step - 2, 2 * step);
      const wanted = [0, 1, 2, 3].map((i) => 15 - ((next.first + i) % 16));
      expect(update.groups.map(({ index }: { index: number }) => index)).toEqual(wanted);
      expect(steps[step - 1]).toEqual(wanted.map(String).sort());
      expect(update.groups[0].row).toEqual(prompt(wanted[0]!));
      expect(update.groups[0].responses).toHaveLength(4);
      expect(update.groups[0].responses[0]).toEqual({
        text: expect.any(String),
        score: expect.any(Number),
        extra: { acc: expect.any(Number) },
        length: expect.any(Number),
      });
      expect(update.metrics).toMatchObject({ "critic/score/mean": metrics[step - 1]!["critic/score/mean"] });
      expect(Object.keys(update.metrics).filter((name) => /^(timing_|perf\/)/.test(name))).toEqual([]);
    }
    const { loader } = JSON.parse(await readFile(yard.path("sampled", "global_step_3", "state.json"), "utf8"));
    const means = calls.flatMap(({ metrics: told }) => (told === undefined ? [] : [told["critic/score/mean"]]));
    expect(loader).toMatchObject({ batches: 3, sampler: { means: means.map((mean) => expect.closeTo(mean, 6)) } });
  });

  test("may be another export of the file, and stand in a config", async () => {
    const keys = ["trainer.logged_tokens=100000", "trainer.total_training_steps=1"];
    expect(
      await ppo("forwards", `data.sampler={class_path:${yard.path("backwards.ts")},class_name:forwards}`, ...keys),
    ).toMatchObject({ code: 0 });
    expect(await trained("forwards")).toEqual([["0", "1", "2", "3"]]);
    const none = ["data.sampler.class_path=gone.ts", "data.sampler=null", "data.datagen=null", "data.custom_cls=null"];
    expect(await ppo("none", ...none, ...keys)).toMatchObject({ code: 0 });
    const config = `
import { defineConfig, defineSampler } from "trainyard";
export default defineConfig({
  data: {
    sampler: defineSampler({
      state: { from: 8 },
      next: (state, { batchSize }) => Array.from({ length: batchSize }, (_, i) => state.from + i),
    }),
  },
  trainer: { total_training_steps: 1, logged_tokens: 100000 },
});`;
    await write("config.ts", config);
    const keysOfYard = yard.keys("inline", [`custom_reward_function.path=${yard.path("reward.ts")}`, ...keys]);
    const { code, said } = await yard.command("ppo", yard.path("config.ts"), ...keysOfYard);
    expect([code, said]).toEqual([0, expect.any(String)]);
    expect(await trained("inline")).toEqual([["10", "11", "8", "9"]]);
    const saved = JSON.parse(await readFile(yard.path("inline", "config.json"), "utf8"));
    expect(saved.data.sampler.value).toBe("(sampler in the config file)");
  });

  test.each<[what: string, body: string, message: RegExp]>([
    ["a row that is not there", "next: () => [0, 1, 2, 16]", /`next` gave the row 16, and the rows are 0 to 15\./],
    ["a row twice", "next: () => [0, 1, 2, 1]", /`next` gave the row 1 twice in one batch\./],
    ["too few rows", "next: () => [0, 1, 2]", /`next` gave 3 rows, and a batch has 4 \(`data\.train_batch_size`\)\./],
    ["no list", "next: () => 'all' as never", /`next` gave "all", and not a list of row numbers\./],
    [
      "an error",
      "next() { throw new RangeError('no more'); }",
      /`next` threw RangeError: no more \(bad-4\.ts:3:\d+\)\./,
    ],
    [
      "an error in update",
      "next: () => [0, 1, 2, 3], update() { throw new Error('lost'); }",
      /`update` threw Error: lost/,
    ],
    [
      "a state that is not JSON",
      "next: (state) => { Object.assign(state, { seen: new Set() }); return [0, 1, 2, 3]; }",
      /after `next`, state\.seen is a Set, which a checkpoint cannot keep\./,
    ],
    [
      "a list as state",
      "state: [], next: () => []",
      /at the start, state is an empty list, which a checkpoint cannot keep/,
    ],
    ["no function", "next: 3 as never", /the sampler has no function `next`\./],
  ])("that gives %s ends the run with a message that names the file", async (what, body, message) => {
    const names = ["a row that is not there", "a row twice", "too few rows", "no list", "an error"];
    const place = names.indexOf(what);
    const file = await write(
      `bad-${place === -1 ? what.replaceAll(" ", "-") : place}.ts`,
      `import { defineSampler } from "trainyard";\n\nexport default defineSampler({ state: {}, ${body} });\n`,
    );
    const { code, said } = await ppo(`bad ${what}`, `data.sampler.class_path=${file}`);
    expect([code, said]).toEqual([2, expect.stringContaining(`${file}: `)]);
    expect(said).toMatch(message);
  });

  test("is refused where it is Python's or not there, before a model is opened", async () => {
    const cases: readonly [keys: readonly string[], message: RegExp][] = [
      [
        ["data.sampler.class_path=curriculum.py"],
        /takes a TypeScript or JavaScript file with `export default defineSampler\(\{ … \}\)` \(docs\/extending\.md shows one; Python classes are not loaded\)/,
      ],
      [["data.sampler.class_path=pkg://verl.sampler"], /defineSampler/],
      [
        ["data.custom_cls.path=rows.py"],
        /`export default defineDataset\(…\)` \(docs\/extending\.md shows one; Python classes are not loaded\)/,
      ],
      [
        ["data.datagen.path=gen.py"],
        /`export default defineDataGenerator\(\{ … \}\)` \(docs\/extending\.md shows one; Python classes are not loaded\)/,
      ],
      [["data.sampler.class_path=nowhere.ts"], /`data\.sampler` names nowhere\.ts, and there is no such file/],
      [
        [`data.sampler.class_path=${yard.path("reward.ts")}`],
        /has no default export\. Write: export default defineSampler\(/,
      ],
      [
        [`data.sampler.class_path=${yard.path("backwards.ts")}`, "data.sampler.class_name=forward"],
        /has no export `forward`\. Did you mean `forwards`\?/,
      ],
      [
        [`data.sampler.class_path=${yard.path("backwards.ts")}`, "data.sampler.class_name=notASampler"],
        /the export `notASampler` is no sampler\. Write: export const notASampler = defineSampler\(/,
      ],
      [[`data.datagen.path=${yard.path("backwards.ts")}`], /the default export is no data generator/],
    ];
    for (const [keys, message] of cases) {
      const { code, said } = await ppo("refused", ...keys);
      expect([keys, code, said]).toEqual([keys, 2, expect.stringMatching(message)]);
    }
  });
});

describe("a dataset", () => {
  test("gives the rows to train and to validate on", async () => {
    const keys = [
      `data.custom_cls.path=${yard.path("dataset.ts")}`,
      "trainer.logged_tokens=100000",
      "trainer.test_freq=1",
    ];
    const { code, said } = await ppo("given", ...keys);
    expect([code, said]).toEqual([0, expect.stringContaining("on 8 prompts, 1 to validate on")]);
    expect((await trained("given")).flat().sort()).toEqual(["0", "10", "12", "14", "2", "4", "6", "8"]);
    expect((await yard.metrics("given"))[1]).toHaveProperty("val-core/held-out/acc/mean@1");
  });

  test("needs no files", async () => {
    const keys = yard.keys("no-files").filter((key) => !key.startsWith("data.train_files"));
    const { code, said } = await yard.command(
      "ppo",
      ...keys,
      `custom_reward_function.path=${yard.path("reward.ts")}`,
      `data.custom_cls.path=${yard.path("dataset.ts")}`,
      "data.custom_cls.name=numbers",
    );
    expect([code, said]).toEqual([0, expect.stringContaining("on 8 prompts")]);
  });

  test.each([
    ["empty", /`data\.custom_cls` gives 0 prompts, fewer than the 4 of one step/],
    ["words", /dataset\.ts: the dataset said: row 1 is the text "a"\. A row is an object with columns\./],
    ["nothing", /dataset\.ts: the dataset said: what it gave is nothing\. Return rows/],
    ["broken", /dataset\.ts, row 1, column `prompt`: expected a chat/],
  ])("with a mistake gives a message: %s", async (name, message) => {
    const { code, said } = await ppo(
      "bad",
      `data.custom_cls.path=${yard.path("dataset.ts")}`,
      `data.custom_cls.name=${name}`,
    );
    expect([code, said]).toEqual([2, expect.stringMatching(message)]);
  });
});

describe("a data generator", () => {
  test("adds rows, which count from the next epoch on and are in the checkpoint", async () => {
    const keys = [`data.datagen.path=${yard.path("generator.ts")}`, "trainer.logged_tokens=100000"];
    expect(await ppo("generated", ...keys, "trainer.total_training_steps=12")).toMatchObject({ code: 0 });
    const steps = await trained("generated");
    const first = steps.slice(0, 4).flat();
    expect(first.toSorted((a, b) => Number(a) - Number(b))).toEqual(Array.from({ length: 16 }, (_, i) => String(i)));
    const second = steps.slice(4).flat(); // 16 rows and four of each of four steps: eight batches
    expect(new Set(second).size).toBe(32);
    expect(second.filter((truth) => truth.includes(",")).sort()).toContain("4,3,28");
    const { loader, datagen } = JSON.parse(
      await readFile(yard.path("generated", "global_step_12", "state.json"), "utf8"),
    );
    expect([loader.rows, loader.epoch, datagen.state.made, datagen.rows.length]).toEqual([32, 1, 48, 48]);
  });

  test("whose rows are not JSON or not prompts ends the run", async () => {
    const make = async (rows: string) => {
      const text = `import { defineDataGenerator } from "trainyard";\nexport default defineDataGenerator({ state: {}, generate: () => ${rows} });\n`;
      const file = await write(`made-${rows.length}.ts`, text);
      return await ppo(`made ${rows.length}`, `data.datagen.path=${file}`);
    };
    expect(await make("[{ prompt: '1:', at: new Date() }]")).toEqual({
      code: 2,
      said: expect.stringMatching(/made-\d+\.ts, row 1: the row\.at is a Date, which a checkpoint cannot keep/),
    });
    expect(await make("[{ question: '1:' }]")).toEqual({
      code: 2,
      said: expect.stringMatching(/made-\d+\.ts, row 1: there is no column `prompt`/),
    });
  });
});

describe("a resumed run", () => {
  const hooked = () => [
    `data.sampler.class_path=${yard.path("backwards.ts")}`,
    `data.datagen.path=${yard.path("generator.ts")}`,
    `data.custom_cls.path=${yard.path("dataset.ts")}`,
    "trainer.save_freq=1",
    "trainer.logged_tokens=100000",
  ];
  const variants: readonly [what: string, keys: readonly string[]][] = [
    ["with a sampler and a generator", []],
    [
      "with groups that are filtered",
      [
        "algorithm.filter_groups.enable=true",
        "algorithm.filter_groups.metric=score",
        "algorithm.filter_groups.max_num_gen_batches=0",
      ],
    ],
    ["with checkpoints in the background", ["actor_rollout_ref.actor.checkpoint.async_save=true"]],
  ];
  test.each(variants)("%s ends like one that was not interrupted", async (what, keys) => {
    const all = [...hooked(), ...keys];
    const [whole, parts] = [`whole ${what}`, `parts ${what}`];
    expect(await ppo(whole, ...all, "trainer.total_training_steps=5")).toMatchObject({ code: 0 });
    for (const steps of [1, 3, 5])
      expect(await ppo(parts, ...all, `trainer.total_training_steps=${steps}`)).toMatchObject({ code: 0 });
    expect(await yard.outcome(parts)).toEqual(await yard.outcome(whole));
    const { loader } = JSON.parse(await readFile(yard.path(parts, "global_step_5", "state.json"), "utf8"));
    if (keys.length === 3)
      expect(loader.batches).toBeGreaterThan(5); // several rounds of sampling in a step
    else expect(loader.batches).toBe(5);
  });

  test("without its sampler, its generator or its rows is refused", async () => {
    const run = "other";
    const datagen = `data.datagen.path=${yard.path("generator.ts")}`;
    expect(await ppo(run, datagen)).toMatchObject({ code: 0 });
    const more = "trainer.total_training_steps=3";
    const cases: readonly [keys: readonly string[], message: RegExp][] = [
      [[], /made with a data generator, and now `data\.datagen` names none/],
      [
        [datagen, `data.sampler.class_path=${yard.path("backwards.ts")}`],
        /made without a sampler, and now `data\.sampler` names one/,
      ],
      [[datagen, `data.custom_cls.path=${yard.path("dataset.ts")}`], /was made with other prompts/],
    ];
    for (const [keys, message] of cases)
      expect([keys, await ppo(run, more, ...keys)]).toEqual([keys, { code: 2, said: expect.stringMatching(message) }]);
    expect(await ppo("plain", `data.sampler.class_path=${yard.path("backwards.ts")}`)).toMatchObject({ code: 0 });
    expect(await ppo("plain", more)).toEqual({
      code: 2,
      said: expect.stringMatching(/made with a sampler \(`data\.sampler`\), and now there is none/),
    });
  });
});
