/** Search in rollouts, and validation over time. */
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { writeRun } from "../../test/dashboard-yard.ts";
import type { NewGroup } from "../run/rollouts.ts";
import { setLevel } from "../util/log.ts";
import type { SearchHit } from "./api.ts";
import { RunView } from "./run-view.ts";

let root: string;
let view: RunView;

const groups = (step: number): NewGroup[] => [
  {
    prompt: `Prompt "${step}"\nwith Ümlauts`,
    truth: { answer: step },
    source: "x",
    episodes: ["no", `the ANSWER is ${step}\tdone`].map((response, score) => ({
      response,
      tokens: [response],
      logprobs: [-1],
      advantages: [score],
      score,
      extra: {},
    })),
  },
];

beforeAll(async () => {
  setLevel("quiet");
  root = await mkdtemp(join(tmpdir(), "trainyard-search-"));
  const dir = join(root, "run");
  await writeRun(dir, { steps: 300, validateEvery: 5, groups });
  view = new RunView("x", dir);
});
afterAll(async () => {
  setLevel("info");
  await rm(root, { recursive: true });
});

/** Search to the end. */
async function searchAll(text: string): Promise<SearchHit[]> {
  const hits: SearchHit[] = [];
  for (let before: number | null = null; ; ) {
    const page = await view.search(text, before);
    hits.push(...page.hits);
    if (page.next === null) return hits;
    before = page.next;
  }
}

describe("searching rollouts", () => {
  test("finds every place once, newest first, page after page", async () => {
    const hits = (await searchAll("answer is")).filter(({ kind }) => kind === "train");
    expect(hits.map(({ step }) => step)).toEqual(Array.from({ length: 300 }, (_, i) => 300 - i));
    expect(hits[0]).toMatchObject({ group: 0, episode: 1, score: 1 });
    for (const { excerpt, at } of hits) expect(excerpt.slice(at, at + 9)).toBe("ANSWER is");
  });

  const texts: Record<string, string> = {
    "a text with quotes": 'prompt "123"',
    "letters beyond ASCII, small or capital": "üML",
    "a line break and a tab": "is 123\tdone",
    "the truth": '"answer":123',
  };
  for (const [what, text] of Object.entries(texts)) {
    test(`finds ${what}`, async () => {
      expect((await searchAll(text)).map(({ step }) => step)).toContain(123);
    });
  }

  test("finds nothing in the names of fields", async () => {
    expect(await searchAll('"logprobs":[')).toEqual([]);
    expect(await searchAll("nowhere to be found")).toEqual([]);
  });
});

describe("validation over time", () => {
  test("shows evenly spaced steps, and every prompt's mean score at each", async () => {
    const { steps, validations, prompts } = await view.validationTable();
    expect([validations, steps.length, steps[0], steps.at(-1)]).toEqual([60, 24, 5, 300]);
    expect(prompts).toHaveLength(6);
    for (const { scores } of prompts) {
      expect(scores).toHaveLength(24);
      for (const score of scores) expect([0, 0.5, 1]).toContain(score);
    }
  });

  test("gives the responses to one prompt at these steps, whose scores are the table's", async () => {
    const { steps, prompts } = await view.validationTable();
    const { key, prompt, scores } = prompts[2]!;
    const history = await view.promptHistory(key);
    expect(history?.group.prompt).toBe(prompt);
    expect(history?.at.map(({ step }) => step)).toEqual(steps);
    const means = history?.at.map(
      ({ episodes }) => episodes.reduce((sum, { score }) => sum + score!, 0) / episodes.length,
    );
    expect(means).toEqual(scores);
    expect(await view.promptHistory("no such key")).toBeNull();
  });
});
