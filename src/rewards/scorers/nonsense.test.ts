/** No response holds a scorer up for more than 50 ms or makes it throw, whatever a model wrote. */
import { expect, test } from "vitest";
import { scoreGeo3k } from "./geo3k.ts";
import { scoreGsm8k } from "./gsm8k.ts";
import { scoreMathDapo } from "./math-dapo.ts";
import { scoreMathReward } from "./math-reward.ts";
import { scoreMathVerify } from "./math-verify.ts";
import { scorePrimeMath } from "./prime-math.ts";
import { scoreSearchQa } from "./search-qa.ts";

const scorers: Readonly<Record<string, (response: string, truth: string) => unknown>> = {
  gsm8k: scoreGsm8k,
  "gsm8k, flexible": (response, truth) => scoreGsm8k(response, truth, { method: "flexible" }),
  math_reward: scoreMathReward,
  math_dapo: scoreMathDapo,
  search_qa: (response, truth) => scoreSearchQa(response, [truth], { substring: true }),
  geo3k: scoreGeo3k,
  prime_math: scorePrimeMath,
  math_verify: scoreMathVerify,
};

const pieces: readonly string[] = [
  "\\",
  "{",
  "}",
  "{}",
  "(",
  "[",
  "$",
  "\\$",
  "%",
  "!",
  "=",
  ",",
  "_",
  "|",
  " ",
  "\n",
  "é",
  "🙂",
  "a",
  "1",
  "-",
  "\\frac",
  "\\frac12",
  "\\sqrt",
  "\\sqrt2",
  "\\sqrt{",
  "\\boxed",
  "\\boxed{",
  "\\boxed ",
  "\\boxed{1}",
  "\\fbox{",
  "\\text{",
  "\\text{ ",
  "\\text{a}",
  "\\pi",
  "\\\\",
  "\\[",
  "x_",
  "9^",
  "9^{",
  "1,",
  "1,111",
  "1 - ",
  "1/",
  "2!",
  "Answer:",
  "answer is ",
  "final answer ",
  "is ",
  "be\n",
  ". ",
  " and ",
  "feet^2 ",
  "the ",
  "#### 1",
  "<think></think>",
  "<answer>",
  "</answer>",
  "<answer>a</answer>",
  "\\begin{pmatrix}",
  "1 & 2 \\\\ ",
];
const nested: readonly string[] = [
  "{…}",
  "(…)",
  "[…]",
  "|…|",
  "\\{…\\}",
  "\\frac{…}{1}",
  "\\sqrt{…}",
  "2^{…}",
  "a_{…}",
  "\\text{…}",
  "(…),",
  "(…,1)",
  "\\{…=1\\}",
  "x=(…)",
  "\\sin …",
];
const SHORT = 960; // formulas of this length are still read

const texts: readonly string[] = [
  ...pieces.map((piece) => piece.repeat(Math.ceil(2 ** 20 / piece.length))),
  ...pieces.map((piece) => piece.repeat(Math.ceil(SHORT / piece.length)).slice(0, SHORT)),
  ...nested.map((nest) => {
    const [open = "", close = ""] = nest.split("…");
    const depth = Math.floor(SHORT / (open.length + close.length));
    return `${open.repeat(depth)}1${close.repeat(depth)}`;
  }),
];

test.each([
  ["bare", "", ""],
  ["in a box", "\\boxed{", "}"],
  ["as an answer", "Answer: ", ""],
  ["in tags", "<answer>", "</answer>"],
])("every scorer is done in time with nonsense %s", (_place, before, after) => {
  for (const text of texts) {
    const response = Buffer.from(`${before}${text}${after}`).toString(); // one flat text, as a tokenizer gives it
    for (const [name, score] of Object.entries(scorers)) {
      for (const truth of text.length > SHORT ? ["1"] : ["1", "(1,2)", "x=1"]) {
        const taken = fastest(() => score(response, truth));
        expect(taken, `${name}: ${text.slice(0, 20)} for ${truth}`).toBeLessThan(50);
      }
    }
  }
});

/** Milliseconds of the fastest of a few tries: others use this machine too. */
function fastest(run: () => unknown): number {
  let best = Number.POSITIVE_INFINITY;
  for (let tries = 0; tries < 6 && best >= 25; tries++) {
    const start = performance.now();
    run();
    best = Math.min(best, performance.now() - start);
  }
  return best;
}
