/** What `reward.sources` says, and what is refused of it before a run starts. */
import { describe, expect, test } from "vitest";
import { entriesOf } from "../entries.ts";
import { parseOverride } from "../overrides.ts";
import { resolve } from "../resolve.ts";
import { checkDataSource, partsFor, rewardTree } from "./reward-tree.ts";
import { ppoSchema } from "./schema.ts";

const surroundings = { home: "/home/u", env: {} };
const ppo = (...overrides: readonly string[]) =>
  resolve(ppoSchema, [["actor_rollout_ref.model.path=m", ...overrides].map(parseOverride)], surroundings);
const treeOf = (...overrides: readonly string[]) => rewardTree(ppo(...overrides).config);
const judge = ["judge.url=http://127.0.0.1:1", "judge.model=j", `judge.template="{response}"`];
const strict = judge.map((key) => `reward.models.strict.${key}`);

describe("reward.sources", () => {
  const file = {
    actor_rollout_ref: { model: { path: "m" } },
    reward: {
      sources: {
        "openai/gsm8k": [{ use: "scorer" }, { use: "judge", name: "strict", weight: 0.5 }],
        "my.set": [{ use: "function", name: "brief", weight: 2 }],
        "*": [{ use: "judge", name: "strict" }],
      },
      models: { strict: { judge: { url: "http://127.0.0.1:1", model: "j", template: "{response}" } } },
      functions: { brief: { path: "~/brief.ts", reward_kwargs: { limit: 3 } } },
    },
  };

  test("reads the same from a file and from the command line", () => {
    const fromFile = resolve(ppoSchema, [entriesOf(file, () => "in run.json")], surroundings).config;
    const typed = ppo(
      "reward.sources={openai/gsm8k:[{use:scorer},{use:judge,name:strict,weight:0.5}]," +
        "my.set:[{use:function,name:brief,weight:2}],'*':[{use:judge,name:strict}]}",
      ...strict,
      "reward.functions.brief.path=~/brief.ts",
      "reward.functions.brief.reward_kwargs.limit=3",
    ).config;
    const whole = ppo(
      `reward={models:{strict:{judge:{url:"http://127.0.0.1:1",model:j,template:"{response}"}}}}`,
      "reward.functions={brief:{path:~/brief.ts,reward_kwargs:{limit:3}}}",
      "reward.sources.openai/gsm8k=[{use:scorer},{use:judge,name:strict,weight:0.5}]",
      "reward.sources.my.set=[{use:function,name:brief,weight:2}]",
      "reward.sources.*=[{use:judge,name:strict}]",
    ).config;
    expect(typed.reward).toEqual(fromFile.reward);
    expect(whole.reward).toEqual(fromFile.reward);
    expect(JSON.parse(JSON.stringify(typed))).toEqual(typed);
  });

  test("opens each part once, and lists them by data source", () => {
    const tree = rewardTree(resolve(ppoSchema, [entriesOf(file, () => "")], surroundings).config);
    expect(tree.parts.map(({ use, key }) => [use, key])).toEqual([
      ["scorer", "reward.sources"],
      ["judge", "reward.models.strict"],
      ["function", "reward.functions.brief"],
    ]);
    const listed = (source: string) => partsFor(tree, source).map(({ column, weight }) => [column, weight]);
    expect(listed("openai/gsm8k")).toEqual([
      ["reward/scorer", 1],
      ["reward/strict", 0.5],
    ]);
    expect(listed("my.set")).toEqual([["reward/brief", 2]]);
    expect(listed("anything")).toEqual([["reward/strict", 1]]);
  });

  test("without a name an entry is what the other keys describe", () => {
    const keys = [
      "custom_reward_function.path=a.ts",
      "reward_model.model.path=r",
      ...judge.map((it) => `reward_model.${it}`),
    ];
    const sources = "reward.sources={a:[{use:function},{use:model},{use:judge}]}";
    expect(treeOf(sources, ...keys).parts.map(({ use, key }) => [use, key])).toEqual([
      ["function", "custom_reward_function"],
      ["model", "reward_model"],
      ["judge", "reward_model"],
    ]);
  });

  test("a named model has the defaults of reward_model", () => {
    const { config } = ppo("reward.models.kind.model.path=k", "critic.forward_max_token_len_per_gpu=99");
    expect(config.reward.models?.kind).toMatchObject({
      model: { path: "k", input_tokenizer: "m" },
      forward_max_token_len_per_gpu: 99,
      service: { protocol: "vllm" },
    });
  });
});

const refusals: readonly (readonly [what: string, overrides: readonly string[], says: RegExp])[] = [
  ["no list", ["reward.sources={a:3}"], /for the data source "a" is 3; it takes a list/],
  ["an empty list", ["reward.sources={a:[]}"], /takes a list of entries/],
  ["another way", ["reward.sources={a:[{use:magic}]}"], /entry 1 is .*magic.*one of function, scorer, model/],
  ["another key", ["reward.sources={a:[{use:scorer,wieght:2}]}"], /entry 1 is .*`weight`, a number/],
  ["one part twice", ["reward.sources={a:[{use:scorer},{use:scorer}]}"], /both be the column `reward\/scorer`/],
  ["no dict", ["reward.sources=function"], /`reward\.sources` is "function" on the command line; it takes a dict/],
  ["no function", ["reward.sources={a:[{use:function}]}"], /there is no `custom_reward_function`/],
  [
    "an unknown function",
    ["reward.sources={a:[{use:function,name:f}]}"],
    /names the function "f", and there is no `reward\.functions\.f`/,
  ],
  [
    "a misspelt model",
    ["reward.sources={a:[{use:judge,name:strickt}]}", ...strict],
    /"strickt", which does not exist\. Did you mean "strict"\?/,
  ],
  ["an unknown scorer", ["reward.sources={a:[{use:scorer,name:math_verfy}]}"], /Did you mean "math_verify"\?/],
  ["a model without a path", ["reward.sources={a:[{use:model}]}"], /`reward_model\.model\.path` is missing/],
  ["a judge without an address", ["reward.sources={a:[{use:judge}]}"], /`reward_model\.judge\.url` is missing/],
  [
    "a named judge without a template",
    ["reward.sources={a:[{use:judge,name:strict}]}", ...strict.slice(0, 2)],
    /`reward\.models\.strict\.judge\.template` is missing/,
  ],
  [
    "an unknown key of a model",
    ["reward.models.kind.modle.path=k"],
    /`reward\.models\.kind\.modle\.path` .* is not a key.*`reward\.models\.kind\.model\.path`/,
  ],
  [
    "two ways without it",
    ["custom_reward_function.path=a.ts", "reward_model.enable=true", "reward_model.model.path=r"],
    /both choose .*reward\.sources=\{'\*':\[\{use:function,weight:1\},\{use:model,weight:1\}\]\}/,
  ],
];
test.each(refusals)("refused: %s", (_, overrides, says) => {
  expect(() => ppo(...overrides)).toThrow(says);
});

test("a data source without an entry, or without the scorer that its entry asks for, is refused", () => {
  const tree = treeOf("reward.sources={openai/gsm8k:[{use:scorer}],weather:[{use:scorer}]}");
  expect(() => checkDataSource(tree, "openai/gsm8k")).not.toThrow();
  expect(() => checkDataSource(tree, "openai/gsm8")).toThrow(
    /"openai\/gsm8" has no entry in `reward\.sources`, which has openai\/gsm8k, weather\. Did you mean "openai\/gsm8k"\?/,
  );
  expect(() => checkDataSource(tree, "weather")).toThrow(/no built-in scorer for the data source "weather"/);
});

test("keys that no entry uses are named", () => {
  const { notices } = ppo(
    "reward.sources={'*':[{use:scorer}]}",
    "custom_reward_function.path=a.ts",
    "reward_model.enable=true",
    "reward_model.model.path=r",
    ...strict,
  );
  const said = notices.join("\n");
  expect(said).toMatch(/`custom_reward_function\.path` has no effect: no entry of `reward\.sources` has use=function/);
  expect(said).toMatch(/`reward_model\.enable`.* no effect: no entry of `reward\.sources` has use=model/);
  expect(said).toMatch(/`reward\.models\.strict` has no effect: no entry of `reward\.sources` names it/);
});
