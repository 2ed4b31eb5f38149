import { mkdir, mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { trackContext } from "../../test/tracking.ts";
import { filePath, openFile } from "./file.ts";

let dir = "";
beforeEach(async () => {
  dir = await mkdtemp(join(tmpdir(), "track-file-"));
});
afterEach(() => rm(dir, { recursive: true, force: true }));

test.each([
  [{}, "math/first.jsonl"],
  [{ VERL_FILE_LOGGER_ROOT: "/logs" }, "/logs/math/first.jsonl"],
  [{ VERL_FILE_LOGGER_ROOT: "~/logs", HOME: "/home/me" }, "/home/me/logs/math/first.jsonl"],
  [{ VERL_FILE_LOGGER_ROOT: "/logs", VERL_FILE_LOGGER_PATH: "/x/y.jsonl" }, "/x/y.jsonl"],
])("with %j the file is %s", (env, expected) => {
  expect(filePath({ project: "math", experiment: "first", env })).toBe(expected);
});

describe("the lines", () => {
  const run = async (startStep: number | null, steps: readonly number[]): Promise<string> => {
    const env = { VERL_FILE_LOGGER_ROOT: dir };
    const tracker = await openFile(trackContext({ dir, env, startStep }));
    for (const step of steps) tracker.log(step, { a: step / 2, b: Number.NaN });
    await tracker.close("finished");
    return await readFile(filePath(trackContext({ dir, env })), "utf8");
  };
  const lines = (steps: readonly number[]) =>
    steps.map((step) => `{"step":${step},"data":{"a":${step / 2},"b":null}}\n`).join("");

  test("are verl's", async () => {
    expect(await run(null, [1, 2, 3])).toBe(lines([1, 2, 3]));
  });

  test("of a resumed run are those of an unbroken one", async () => {
    await run(null, [1, 2, 3, 4]);
    expect(await run(2, [3, 4, 5])).toBe(lines([1, 2, 3, 4, 5]));
  });

  test("of a run that starts over replace the old ones", async () => {
    await run(null, [1, 2, 3]);
    expect(await run(null, [1])).toBe(lines([1]));
  });

  test("of a killed run lose their half-written end on resume", async () => {
    await mkdir(join(dir, "project"), { recursive: true });
    await writeFile(join(dir, "project", "experiment.jsonl"), `${lines([1])}{"step":2,"da`);
    expect(await run(2, [3])).toBe(lines([1, 3]));
  });
});

test("a place that cannot be written is refused with its path", async () => {
  await writeFile(join(dir, "taken"), "");
  const context = trackContext({ dir, env: { VERL_FILE_LOGGER_PATH: join(dir, "taken", "x.jsonl") } });
  await expect(openFile(context)).rejects.toThrow(/taken\/x\.jsonl cannot be written: a part of the path is a file/);
});
