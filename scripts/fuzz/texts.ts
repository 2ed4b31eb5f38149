/** Random inputs of scorers: a response and a ground truth, put together from answers and from ways to give one. */
import type { Random } from "../../src/util/random.ts";
import { chance, pick, times } from "./dice.ts";
import type { Generator } from "./numbers.ts";

const digits = (random: Random, count: number) => times(count, () => random.int(10)).join("");
const whole = (random: Random) => String(random.int(pick(random, [10, 100, 10000])));
const letters = ["x", "y", "n", "a"];

/** Answers as texts: plain numbers first, then what LaTeX and other scripts make of them. */
const answers: readonly ((random: Random) => string)[] = [
  whole,
  whole,
  (random) => `-${whole(random)}`,
  (random) => `${whole(random)}.${digits(random, 1 + random.int(3))}`,
  (random) => `.${digits(random, 2)}`,
  (random) => `${whole(random)}.`,
  (random) => `${whole(random)}.0`,
  () => "-0",
  () => "0.0",
  (random) => `1${digits(random, 30 + random.int(30))}`,
  (random) => `${1 + random.int(9)},${digits(random, 3)}`,
  (random) => `${1 + random.int(9)},${digits(random, 3)},${digits(random, 3)}`,
  (random) => `${1 + random.int(9)}{,}${digits(random, 3)}`,
  (random) => `${1 + random.int(9)}\\,${digits(random, 3)}`,
  (random) => `${1 + random.int(9)} ${digits(random, 3)}`,
  (random) => `${whole(random)}%`,
  (random) => `${whole(random)}\\%`,
  (random) => `$${whole(random)}`,
  (random) => `\\$${whole(random)}`,
  (random) => `${whole(random)} dollars`,
  (random) => `${1 + random.int(9)}/${1 + random.int(9)}`,
  (random) => `-${1 + random.int(9)}/${1 + random.int(9)}`,
  (random) => `\\frac{${whole(random)}}{${1 + random.int(9)}}`,
  (random) => `\\frac${random.int(10)}${1 + random.int(9)}`,
  (random) => `\\dfrac{${whole(random)}}{${1 + random.int(9)}}`,
  (random) => `\\tfrac{-${1 + random.int(9)}}{${1 + random.int(9)}}`,
  (random) => `-\\frac{${1 + random.int(9)}}{${1 + random.int(9)}}`,
  (random) => `${1 + random.int(9)}\\frac{1}{${2 + random.int(8)}}`,
  (random) => `${1 + random.int(9)} 1/${2 + random.int(8)}`,
  (random) => `\\sqrt{${whole(random)}}`,
  (random) => `\\sqrt${random.int(10)}`,
  (random) => `${1 + random.int(9)}\\sqrt{${2 + random.int(9)}}`,
  (random) => `${1 + random.int(9)}\\pi`,
  (random) => `\\frac{\\pi}{${1 + random.int(9)}}`,
  (random) => `${whole(random)}^\\circ`,
  (random) => `${whole(random)}^{\\circ}`,
  (random) => `${whole(random)} degrees`,
  (random) => `${whole(random)} cm`,
  (random) => `${whole(random)}\\text{ cm}`,
  (random) => `${whole(random)} \\text{ square units}`,
  (random) => `${whole(random)}\\mbox{ inches}^2`,
  (random) => `(${random.int(9)}, ${random.int(9)})`,
  (random) => `(${random.int(9)},${random.int(9)})`,
  (random) => `[${random.int(9)}, ${9 + random.int(9)})`,
  () => "(-\\infty, 3]",
  () => "[0,\\infty)",
  (random) => `\\left(${random.int(9)},${random.int(9)}\\right)`,
  (random) => `\\{${random.int(9)}, ${random.int(9)}\\}`,
  (random) => `${random.int(9)}, ${random.int(9)}`,
  (random) => `${random.int(9)} and ${random.int(9)}`,
  (random) => `${pick(random, letters)}=${whole(random)}`,
  (random) => `${pick(random, letters)} = ${random.int(9)}`,
  (random) => `${pick(random, letters)} + ${random.int(9)}`,
  (random) => `${2 + random.int(8)}${pick(random, letters)}^2 - ${1 + random.int(9)}`,
  (random) => `${pick(random, letters)}^{${random.int(20)}}`,
  (random) => `2^{${random.int(12)}}`,
  (random) => `10^${random.int(9)}`,
  (random) => `${1 + random.int(9)} \\times 10^{${random.int(9)}}`,
  (random) => `${1 + random.int(9)}e${random.int(9)}`,
  (random) => `${1 + random.int(9)} \\cdot ${1 + random.int(9)}`,
  (random) => `\\text{${pick(random, ["even", "odd", "(A)", "Monday", "x = 5"])}}`,
  (random) => `\\mathrm{${pick(random, ["cm", "A", "m/s"])}}`,
  (random) => pick(random, ["A", "B", "(C)", "D.", "True", "yes", "even", "Paris"]),
  () => "\\infty",
  () => "\\emptyset",
  () => "\\begin{pmatrix} 1 \\\\ 2 \\end{pmatrix}",
  () => "\\begin{pmatrix} 1 & 0 \\\\ 0 & 1 \\end{pmatrix}",
  () => "٤٢", // Arabic-Indic digits
  () => "४२", // Devanagari digits
  () => "４２", // full-width digits
  () => "½",
  () => "x²",
  () => "−5", // the minus sign, not a hyphen
  () => "",
  () => " ",
  () => "\\!42",
  () => "42\\\\",
  () => "a pan",
  () => "The answer",
];

const answer = (random: Random): string => pick(random, answers)(random);

/** Ways to give an answer; some are broken. */
const wraps: readonly ((text: string) => string)[] = [
  (text) => text,
  (text) => `#### ${text}`,
  (text) => `####${text}`,
  (text) => `The answer is ${text}.`,
  (text) => `the final answer is $${text}$. I hope it is correct.`,
  (text) => `Answer: ${text}`,
  (text) => `Answer:${text}`,
  (text) => `answer: $${text}$\n`,
  (text) => `\\boxed{${text}}`,
  (text) => `$\\boxed{${text}}$`,
  (text) => `\\boxed{ ${text} }.`,
  (text) => `\\[ \\boxed{${text}} \\]`,
  (text) => `\\boxed ${text}`,
  (text) => `\\boxed ${text} $ and more`,
  (text) => `\\fbox{${text}}`,
  (text) => `\\boxed{\\boxed{${text}}}`,
  (text) => `\\boxed{${text}`,
  (text) => `\\boxed{${text}}}`,
  (text) => `\\boxed{{${text}}}`,
  (text) => `boxed{${text}}`,
  (text) => `\\boxed{}${text}`,
  (text) => `\\boxed{\\text{${text}}}`,
  (text) => `\\boxed{${text} \\text{ cm}}`,
  (text) => `\\boxed{x = ${text}}`,
  (text) => `$${text}$`,
  (text) => `$$${text}$$`,
  (text) => `\\(${text}\\)`,
  (text) => `**${text}**`,
  (text) => `<answer>${text}</answer>`,
  (text) => `<answer>${text}`,
  (text) => `<think>Let me see.</think> \\boxed{${text}}`,
  (text) => `<think>Let me see. \\boxed{${text}}`,
  (text) => `Step 1: think. Step 2: \\boxed{${text}}`,
  (text) => `${"So it goes. ".repeat(30)}${text}`,
  (text) => `${text}${" and so on".repeat(40)}`,
];

/** A response: an answer given once or several times, with text around it. */
function response(random: Random, text: string): string {
  if (chance(random, 0.02)) return "";
  const first = pick(random, wraps)(text);
  const more = chance(random, 0.3)
    ? `${pick(random, [" ", "\n", ". Then "])}${pick(random, wraps)(answer(random))}`
    : "";
  const before = chance(random, 0.3) ? `${pick(random, ["We get 7. ", "Hence ", "\n\n", "2 + 2 = 4, so "])}` : "";
  return chance(random, 0.2) ? `${before}${more}${first}` : `${before}${first}${more}`;
}

/** The ground truth: the same text, the same with other spaces, or another answer. */
function truthFor(random: Random, text: string): string {
  if (chance(random, 0.45)) return text;
  if (chance(random, 0.2)) return ` ${text.replace("frac", "dfrac")}`;
  if (chance(random, 0.2)) return text.replaceAll(/[,$% ]/g, "");
  return answer(random);
}

const scorer = (name: string, share = 3): Generator => ({
  topic: "reward_scores",
  function: name,
  share,
  inputs: (random) => {
    const text = answer(random);
    return { solution_str: response(random, text), ground_truth: truthFor(random, text) };
  },
});

const words = [
  "the",
  "a",
  "An",
  "Paris",
  "paris",
  "PARIS!",
  "New-York",
  "42",
  "1,000",
  "café",
  "Straße",
  "İstanbul",
  "  ",
];

const search: Generator = {
  topic: "reward_scores",
  function: "search_r1_like_qa_em.compute_score",
  share: 3,
  inputs: (random) => {
    const phrase = () => times(1 + random.int(3), () => pick(random, words)).join(pick(random, [" ", "  ", "\t", "_"]));
    const target = times(1 + random.int(3), phrase);
    const given = chance(random, 0.5) ? pick(random, target) : phrase();
    const wrap = (text: string) => pick(random, [`<answer>${text}</answer>`, `<answer> ${text}\n</answer>`, text]);
    const solution_str = times(1 + random.int(3), () => wrap(chance(random, 0.6) ? given : phrase())).join(" ");
    return { solution_str, ground_truth: { target: chance(random, 0.2) ? target[0] : target } };
  },
};

const sources = ["openai/gsm8k", "lighteval/MATH", "math_dapo", "aime2024", "numina_olympiads", "hiyouga/geometry3k"];

const dispatch: Generator = {
  ...scorer("default_compute_score"),
  only: "0.9.1", // whose math_dapo looks into the box, as ours does
  inputs: (random, version) => ({
    data_source: pick(random, sources),
    ...scorer("default_compute_score").inputs(random, version),
  }),
};

export const textGenerators: readonly Generator[] = [
  scorer("gsm8k.compute_score"),
  scorer("math_reward.compute_score"),
  scorer("math_dapo.compute_score"),
  scorer("prime_math.compute_score", 6),
  scorer("geo3k.compute_score", 4),
  scorer("math_verify.compute_score", 6),
  search,
  dispatch,
];
