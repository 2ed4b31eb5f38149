import { describe, expect, test } from "vitest";
import { EngineLost } from "../engine/lost.ts";
import { UserError } from "../util/errors.ts";
import { setLevel } from "../util/log.ts";
import { type Launch, lostBehind, onEngine } from "./open-engine.ts";

const context = { signal: AbortSignal.any([]), env: {} };
const lost = () => new EngineLost("Worker 1 was lost.");

/** Run with at most so many restarts; each launch does the next of `works`. */
async function attempts(
  most: number,
  works: readonly ((attempt: Launch) => Promise<void>)[],
  { signal = context.signal, resume = "disable" as const } = {},
) {
  const modes: string[] = [];
  const trainer = { engine: "embedded", device: "cpu", threads: 1, resume_mode: resume, max_restarts: most } as const;
  setLevel("quiet");
  try {
    await onEngine({ trainer }, { ...context, signal }, async (attempt) => {
      modes.push(attempt.resumeMode);
      await works[modes.length - 1]!(attempt);
    });
    return { modes, error: null };
  } catch (error) {
    return { modes, error };
  } finally {
    setLevel("info");
  }
}

const fails = async () => {
  throw lost();
};
const savesAndFails = async ({ onSaved }: Launch) => {
  onSaved();
  throw lost();
};
const succeeds = async () => {};

describe("a run whose engine is lost", () => {
  test("starts again from its beginning until something is saved, then resumes from the checkpoint", async () => {
    const { modes, error } = await attempts(3, [fails, savesAndFails, fails, succeeds]);
    expect([modes, error]).toEqual([["disable", "disable", "auto", "auto"], null]);
  });

  test("ends with what was lost and what to do, after the last allowed restart", async () => {
    const { modes, error } = await attempts(1, [fails, fails]);
    expect(modes).toHaveLength(2);
    expect(error).toBeInstanceOf(UserError);
    expect(String(error)).toMatch(/Worker 1 was lost\. That was after 1 restart .*max_restarts.*The same command/);
  });

  test("is not restarted after the user asked to stop", async () => {
    const { modes } = await attempts(3, [fails], { signal: AbortSignal.abort() });
    expect(modes).toHaveLength(1);
  });

  test("differs from any other error, which ends the run at once", async () => {
    const { modes, error } = await attempts(3, [
      async () => {
        throw new UserError("no such file");
      },
    ]);
    expect([modes.length, String(error)]).toEqual([1, "UserError: no such file"]);
  });
});

test("a lost engine is found behind whatever was thrown on the way", async () => {
  const error = lost();
  const disposed = async () => {
    await using _ = { [Symbol.asyncDispose]: () => Promise.reject(new Error("closing")) };
    throw error;
  };
  expect(lostBehind(error)).toBe(error);
  expect(lostBehind(new UserError("cannot be saved", { cause: error }))).toBe(error);
  expect(lostBehind(await disposed().catch((it: unknown) => it))).toBe(error);
  expect(lostBehind(new Error("another"))).toBeNull();
});
