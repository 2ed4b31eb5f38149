/**
 * What the implementation computes is what verl and torch computed: the golden files of fixtures/goldens, and the
 * command `npm run goldens` that checks a folder of them.
 */
import { existsSync, readFileSync } from "node:fs";
import { cp, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { GoldenCase } from "../scripts/goldens/compare.ts";
import { checkDataset } from "../scripts/goldens/dataset.ts";
import { checkTorchFunctional } from "../scripts/goldens/torch-functional.ts";
import { main } from "../scripts/goldens.ts";
import { Runtime } from "../src/runtime/runtime.ts";

const path = (relative: string) => fileURLToPath(new URL(relative, import.meta.url));
const fixtures = path("fixtures/goldens");
const tokenizer = path("../../shared/models/minimind2-small");
const hasTokenizer = existsSync(join(tokenizer, "tokenizer.json"));
const casesOf = (topic: string): GoldenCase[] =>
  GoldenCase.array().parse(JSON.parse(readFileSync(join(fixtures, `${topic}.json`), "utf8")).cases);

const runtime = new Runtime({ threads: 1 });
afterAll(() => runtime.close());

describe("topic torch_functional", () => {
  const cases = casesOf("torch_functional");

  test.each(cases.map((golden) => [golden.name, golden] as const))("%s", async (_, golden) => {
    expect(await checkTorchFunctional(golden, runtime)).toEqual([]);
  });

  test("every case notices when its first number is another", async () => {
    for (const golden of cases) {
      const changed = { ...golden, outputs: withOtherNumber(golden.outputs) };
      expect(await checkTorchFunctional(changed, runtime), golden.name).toHaveLength(1);
    }
  });

  test("a case that nothing checks is a miss", async () => {
    const misses = await checkTorchFunctional({ name: "tomorrow/1", inputs: {}, outputs: {} }, runtime);
    expect(misses).toEqual(["tomorrow/1: there is no check for this case"]);
  });
});

describe("topic dataset", () => {
  for (const golden of casesOf("dataset")) {
    test.skipIf(!hasTokenizer)(`${golden.name} (needs ../shared)`, async () => {
      expect(await checkDataset(golden, tokenizer)).toEqual([]);
    });
  }
});

describe("npm run goldens", () => {
  let folder = "";
  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), "goldens-"));
  });
  afterAll(() => rm(folder, { recursive: true }));

  const run = async (...args: string[]) => {
    const lines: string[] = [];
    return { code: await main(args, (line) => lines.push(line)), lines };
  };

  test("passes on the fixtures and counts their cases", async () => {
    await cp(join(fixtures, "torch_functional.json"), join(folder, "torch_functional_v091.json"));
    expect(await run(folder)).toEqual({ code: 0, lines: ["64 passed, 0 failed"] });
  });

  test("prints a miss with case, place, both values, and ends with 1", async () => {
    const cases = [{ name: "lr_constant/1", inputs: { base_lr: 1, num_warmup_steps: 1, num_values: 2 } }];
    const changed = cases.map((golden) => ({ ...golden, outputs: { lr: [0, 0.9] } }));
    await writeFile(join(folder, "torch_functional_v091.json"), JSON.stringify({ cases: changed }));
    const line = "lr_constant/1: outputs.lr[1] is 1, expected 0.9";
    expect(await run(folder)).toEqual({ code: 1, lines: [line, "0 passed, 1 failed"] });
  });

  test("goes on after a check that breaks off, and counts it as a miss", async () => {
    const whole = { base_lr: 1, num_warmup_steps: 1, num_values: 2 };
    const cases = [
      { name: "lr_constant/1", inputs: { base_lr: "fast" }, outputs: { lr: [0, 1] } },
      { name: "adamw/1", inputs: {}, outputs: { error: "ValueError" } },
      { name: "lr_constant/2", inputs: whole, outputs: { lr: [0, 1] } },
    ];
    await writeFile(join(folder, "torch_functional_v091.json"), JSON.stringify({ cases }));
    const rows = { responses: [[7, 0]], attention_mask: [[1, 0, 0]], decoded_valid_responses: [""] };
    const inputs = { ...rows, ground_truth: ["4"], data_source: ["openai/gsm8k"] };
    const outputs = { reward_tensor: [[0, 0]], reward_extra_info: {} };
    const managed = [
      { name: "prime/with_dict_scorer/empty", function: "PrimeRewardManager", inputs, outputs },
      { name: "advantages", function: "PrimeRewardManager", inputs: {}, outputs },
    ];
    await writeFile(join(folder, "reward_managers.json"), JSON.stringify({ cases: managed }));
    const { code, lines } = await run(folder);
    await rm(join(folder, "reward_managers.json"));
    expect(code).toBe(1);
    expect(lines[0]).toContain("advantages: the check broke off: ");
    expect(lines.find((line) => line.startsWith("lr_constant/1: "))).toContain("base_lr");
    expect(lines.at(-1)).toMatch(/^\d passed, \d failed$/);
    expect(lines.some((line) => line.startsWith("prime/with_dict_scorer/empty"))).toBe(false);
    expect(lines.some((line) => line.startsWith("lr_constant/2"))).toBe(false);
  });

  test("names topics without a checker and does not count them", async () => {
    await rm(join(folder, "torch_functional_v091.json"));
    await writeFile(join(folder, "weather.json"), '{"cases": [{"name": "rain", "inputs": {}, "outputs": {}}]}');
    expect(await run(folder)).toEqual({ code: 0, lines: ["not covered: weather", "0 passed, 0 failed"] });
  });

  test("says why a topic is skipped", async () => {
    await writeFile(join(folder, "dataset.json"), '{"cases": []}');
    const { code, lines } = await run(folder, "--tokenizer", "nowhere");
    expect(code).toBe(0);
    expect(lines[0]).toBe("skipped dataset.json: no tokenizer.json in nowhere; name its folder with --tokenizer");
  });

  test("ends with 2 at a file that is not a golden one", async () => {
    await writeFile(join(folder, "torch_functional.json"), '{"cases": 1}');
    const { code, lines } = await run(folder);
    expect(code).toBe(2);
    expect(lines[0]).toContain("torch_functional.json is not a golden file");
  });

  test.each([
    ["no folder", [], "Name one folder"],
    ["two folders", ["a", "b"], "Name one folder"],
    ["an unknown option", ["--all"], "--all"],
    ["a folder that is not there", ["nowhere"], "nowhere cannot be read"],
    ["a folder without golden files", [path("fixtures/data")], "holds no .json file"],
  ])("ends with 2 when given %s", async (_, args, message) => {
    const { code, lines } = await run(...args);
    expect(code).toBe(2);
    expect(lines).toEqual([expect.stringContaining(message)]);
  });
});

/** The same outputs with the first number moved far; a refusal becomes an answer. */
function withOtherNumber(outputs: unknown): unknown {
  if (Object.hasOwn(Object(outputs), "error")) return { answer: 1 };
  let isDone = false;
  return JSON.parse(JSON.stringify(outputs), (_key, value: unknown) => {
    if (isDone || typeof value !== "number") return value;
    isDone = true;
    return value + 1;
  });
}
