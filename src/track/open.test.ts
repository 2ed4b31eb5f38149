import { mkdtemp, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { trackContext } from "../../test/tracking.ts";
import { UserError } from "../util/errors.ts";
import { checkTrackers, openTrackers } from "./open.ts";

let dir = "";
beforeEach(async () => {
  dir = await mkdtemp(join(tmpdir(), "track-open-"));
});
afterEach(() => rm(dir, { recursive: true, force: true }));

describe("`trainer.logger`", () => {
  test.each([
    ["tensorbord", /`trainer\.logger` is "tensorbord", which does not exist\. Did you mean "tensorboard"\?/],
    ["toString", /does not exist/],
  ])("%s is refused with what there is", (name, message) => {
    expect(() => checkTrackers(["console", name])).toThrow(UserError);
    expect(() => checkTrackers(["console", name])).toThrow(message);
  });

  test.each([
    ["swanlab", /names swanlab, and there is no client of SwanLab for Node.*not available here/],
    ["vemlp_wandb", /not available here/],
  ])("%s is refused where it is the only one, and named where it is not", (name, message) => {
    expect(() => checkTrackers([name])).toThrow(message);
    const { names, notices } = checkTrackers(["file", name, "console"]);
    expect(names).toEqual(["file", "console"]);
    expect(notices).toEqual([expect.stringMatching(message)]);
  });

  test("a name given twice is one tracker", () => {
    expect(checkTrackers(["file", "console", "file"]).names).toEqual(["file", "console"]);
  });
});

describe("several trackers", () => {
  const env = () => ({ VERL_FILE_LOGGER_PATH: join(dir, "log.jsonl"), TENSORBOARD_DIR: join(dir, "events") });

  test("each get every step", async () => {
    const tracker = await openTrackers(["file", "tensorboard", "wandb"], trackContext({ dir, env: env() }));
    for (let step = 1; step <= 3; step++) tracker.log(step, { a: step });
    await tracker.close("finished");
    expect((await readFile(join(dir, "log.jsonl"), "utf8")).match(/"step":/g)).toHaveLength(3);
  });

  test("write nothing when one of them is refused", async () => {
    await writeFile(join(dir, "log.jsonl"), "of an earlier run");
    const opening = openTrackers(["file", "wandb", "mlflow"], trackContext({ dir, env: env() }));
    await expect(opening).rejects.toThrow(/MLFLOW_TRACKING_URI is not set/);
    expect(await readdir(dir)).toEqual(["log.jsonl"]);
    expect(await readFile(join(dir, "log.jsonl"), "utf8")).toBe("of an earlier run");
  });
});
