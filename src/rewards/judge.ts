/**
 * A generative judge: a chat model behind an OpenAI-compatible address reads the sample and writes a score.
 *
 * A reply without a score, or with one out of range, is a failure that shows the reply. It never counts as 0.
 */
import { z } from "zod";
import { describe } from "../data/row.ts";
import { messageOf, UserError } from "../util/errors.ts";
import { excerpt, type RemoteOptions, remote } from "./remote.ts";
import type { RewardFunction, RewardInput } from "./reward.ts";

type JudgeOptions = RemoteOptions & {
  /** The API's base, such as http://127.0.0.1:8000/v1; several where calls are spread over servers. */
  readonly urls: readonly string[];
  readonly model: string;
  /** The message to the judge: a text with `{response}`, and optionally `{prompt}` and `{ground_truth}`. */
  readonly template: string;
  /** A regular expression whose first group is the score; the last match counts. */
  readonly pattern?: string;
  /** The lowest and the highest score that is accepted. */
  readonly range?: readonly [number, number];
  readonly temperature?: number;
  readonly maxTokens?: number;
};

/** `Score: 7`, `**Score:** 7`, `"score": 7`. */
const scorePattern = String.raw`\bscore\b[\s*:="']*(-?\d+(?:\.\d+)?)`;

const Reply = z.object({ choices: z.array(z.object({ message: z.object({ content: z.string() }) })).min(1) });

/** A reward function that asks a judge; what it replied is the column `judge_reply`. */
export function judgeReward(options: JudgeOptions): RewardFunction {
  const { urls, model, template, temperature = 0, maxTokens = 1024, range } = options;
  if (!template.includes("{response}"))
    throw new UserError(
      "The judge's template does not contain {response}, so the judge would not see the response. " +
        "Put {response} where it belongs.",
    );
  const pattern = compile(options.pattern ?? scorePattern);
  const addresses = urls.map((url) => withPath(url, "/chat/completions"));
  const call = remote("The judge", addresses, options);
  return async (input) => {
    const messages = [{ role: "user", content: fill(template, input) }];
    const answer = await call({ model, messages, temperature, max_tokens: maxTokens });
    const parsed = Reply.safeParse(answer);
    if (!parsed.success)
      throw new UserError(
        `The judge at ${urls.join(", ")} answered ${excerpt(JSON.stringify(answer))}, which has no message.`,
      );
    const reply = parsed.data.choices[0]!.message.content;
    const score = scoreOf(reply, pattern);
    if (score === null)
      throw new UserError(
        `The judge's reply ${excerpt(reply)} has no score that ${pattern} finds. ` +
          "Ask for that form in the template, or give another pattern.",
      );
    if (range !== undefined && (score < range[0] || score > range[1]))
      throw new UserError(
        `The judge gave ${score}, which is not between ${range[0]} and ${range[1]}: ${excerpt(reply)}.`,
      );
    return { score, judge_reply: reply };
  };
}

/** The score of a reply: the pattern's last match after any thoughts, or the whole reply if that is a number. */
function scoreOf(reply: string, pattern: RegExp): number | null {
  const said = reply.split("</think>").at(-1)!;
  const written = [...said.matchAll(pattern)].at(-1)?.[1] ?? said.trim();
  const score = written === "" ? Number.NaN : Number(written);
  return Number.isFinite(score) ? score : null;
}

const placeholder = /\{(prompt|response|ground_truth)\}/g;

/** Fill in one pass, so that braces in a response are not replaced. */
function fill(template: string, { prompt, response, groundTruth }: RewardInput): string {
  const values: Readonly<Record<string, () => string>> = {
    prompt: () => prompt,
    response: () => response,
    ground_truth: () => {
      if (typeof groundTruth === "string") return groundTruth;
      if (groundTruth === null || groundTruth === undefined)
        throw new UserError(
          `The judge's template asks for {ground_truth}, and that of the row is ${describe(groundTruth)}. ` +
            "Give it in `reward_model.ground_truth`, or leave it out of the template.",
        );
      return JSON.stringify(groundTruth);
    },
  };
  return template.replaceAll(placeholder, (_, name: string) => values[name]!());
}

function compile(pattern: string): RegExp {
  let compiled: RegExp;
  try {
    compiled = new RegExp(pattern, "gi");
  } catch (cause) {
    throw new UserError(
      `The judge's pattern ${JSON.stringify(pattern)} is not a regular expression: ${messageOf(cause)}.`,
      {
        cause,
      },
    );
  }
  if (new RegExp(`${pattern}|`).exec("")!.length > 1) return compiled;
  throw new UserError(
    `The judge's pattern ${JSON.stringify(pattern)} has no group. Put the part that is the score in parentheses.`,
  );
}

/** The address of a path below a base; a base that already ends in the path is the address itself. */
export function withPath(base: string, path: string): string {
  const trimmed = base.replace(/\/+$/, "");
  return trimmed.endsWith(path) ? trimmed : trimmed + path;
}
