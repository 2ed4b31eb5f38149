import { describe, expect, test } from "vitest";
import { setLevel } from "../../util/log.ts";
import { machineExpiry } from "./machine-expiry.ts";

const mlp = "MLP_CURRENT_CAPACITY_BLOCK_EXPIRATION_TIMESTAMP";
const sagemaker = "SAGEMAKER_CURRENT_CAPACITY_BLOCK_EXPIRATION_TIMESTAMP";

/** With a block that ends at 10,000 s, steps of 100 s and 40 s to spare: 200 s are needed. */
const saves = (env: Record<string, string>, now: number, step = 100) => machineExpiry(env, 40)(step, now);

describe("a run saves before its machine is taken away", () => {
  test.each([
    [mlp, 9799, false],
    [mlp, 9800, true],
    [mlp, 9999, true],
    [mlp, 10_000, false],
    [sagemaker, 9800, false],
    [sagemaker, 9801, true],
    [sagemaker, 10_001, true],
  ])("%s, at %d s: %s", (name, now, expected) => {
    expect(saves({ [name]: "10000" }, now)).toBe(expected);
  });

  test("the first variable counts where both are set, and no variable means no rule", () => {
    expect(saves({ [mlp]: "90000", [sagemaker]: "10000" }, 9900)).toBe(false);
    expect(saves({}, 9900)).toBe(false);
    expect(saves({ [mlp]: "" }, 9900)).toBe(false);
  });

  test("before any step has been measured, only SageMaker's end counts", () => {
    expect(saves({ [mlp]: "10000" }, 9990, 0)).toBe(false);
    expect(saves({ [sagemaker]: "10000" }, 9990, 0)).toBe(true);
  });

  test("a value that is not a number has no effect", () => {
    setLevel("quiet");
    expect(saves({ [mlp]: "tomorrow" }, 9990)).toBe(false);
    setLevel("info");
  });
});
