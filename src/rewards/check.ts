/**
 * Checks the value that a reward function returned: it must be finite, of the right length, and made of values that can
 * be logged. Nothing is clipped, rounded or replaced.
 */
import { describe } from "../data/row.ts";
import { messageOf } from "../util/errors.ts";
import { failed, type Outcome } from "./outcome.ts";
import type { RewardInput } from "./reward.ts";

const FORMS =
  "a reward is a finite number, a boolean, an object with `score`, or a list of one number per response token";

/** The score of a sample, or a failure that says what is wrong with the returned value. */
export function checkReward(value: unknown, input: RewardInput): Outcome {
  const refuse = (message: string) => failed(input, "value", message);
  if (isNumeric(value)) {
    const score = Number(value);
    return Number.isFinite(score) ? { score: { score, extra: {} } } : refuse(`returned ${value}; ${FORMS}`);
  }
  if (Array.isArray(value)) return checkTokens(value, input);
  if (typeof value !== "object" || value === null) return refuse(`returned ${describe(value)}; ${FORMS}`);
  if (!("score" in value)) return refuse(`returned ${describe(value)}, which has no \`score\`; ${FORMS}`);
  const { score, ...extra } = value;
  if (!isNumeric(score) || !Number.isFinite(Number(score)))
    return refuse(`returned a \`score\` that is ${describe(score)}, not a finite number or a boolean`);
  const problem = unloggable(extra);
  return problem === null ? { score: { score: Number(score), extra } } : refuse(problem);
}

/** The scores of a call with several samples: one value for each of them. */
export function checkBatch(values: unknown, inputs: readonly RewardInput[]): Outcome[] {
  if (Array.isArray(values) && values.length === inputs.length)
    return inputs.map((input, i) => checkReward(values[i], input));
  const found = Array.isArray(values) ? `a list of ${values.length}` : describe(values);
  return inputs.map((input) =>
    failed(input, "value", `returned ${found} for a batch of ${inputs.length} samples; it returns a list of as many`),
  );
}

function checkTokens(tokens: readonly unknown[], input: RewardInput): Outcome {
  if (tokens.length !== input.responseLength)
    return failed(
      input,
      "value",
      `returned a list of ${tokens.length} rewards for a response of ${input.responseLength} tokens`,
    );
  const wrong = tokens.findIndex((reward) => typeof reward !== "number" || !Number.isFinite(reward));
  if (wrong >= 0)
    return failed(
      input,
      "value",
      `returned ${describe(tokens[wrong])} as the reward of token ${wrong + 1} of ${tokens.length}, not a finite number`,
    );
  const rewards = tokens.map(Number);
  return { score: { score: rewards.reduce((sum, reward) => sum + reward, 0), tokens: rewards, extra: {} } };
}

function isNumeric(value: unknown): value is number | boolean {
  return typeof value === "number" || typeof value === "boolean";
}

/** Columns are sent from one process to another, so they must be data. */
function unloggable(extra: Readonly<Record<string, unknown>>): string | null {
  for (const [column, value] of Object.entries(extra)) {
    if (typeof value !== "object" && typeof value !== "function" && typeof value !== "symbol") continue;
    try {
      structuredClone(value);
    } catch (error) {
      return `returned a column \`${column}\` that cannot be logged: ${messageOf(error)}`;
    }
  }
  return null;
}
