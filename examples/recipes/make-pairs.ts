/**
 * Makes data for reward-model-then-ppo.sh: pairs of answers to a sum, of which the right one is preferred.
 *
 *   npx node examples/recipes/make-pairs.ts FOLDER
 *
 * The mistakes are of many kinds, chosen at random. A mistake that the pairs do not show, or show with a pattern, would get
 * a high reward, and PPO would find it. Sums for validation are left out.
 */
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";

const folder = process.argv[2] ?? "checkpoints/recipes/preferences";
const test = readFileSync(join(import.meta.dirname, "../quickstart/test.jsonl"), "utf8");

/** A random whole number below `end`; every run gives the same numbers. */
let state = 1;
function draw(end: number): number {
  state = (state * 48271) % 2147483647;
  return state % end;
}

/** The sum without a carry. */
const withoutCarry = (a: number, b: number): number =>
  ((Math.floor(a / 10) + Math.floor(b / 10)) % 10) * 10 + ((a + b) % 10);

/** Ways to get a sum wrong; where one gives the right sum, it is not used. */
const mistakes: readonly ((a: number, b: number) => number)[] = [
  withoutCarry,
  (a, b) => a + b + 10, // a carry too many
  (a, b) => a + b - 10,
  (a, b) => a + b + [1, -1, 100][draw(3)]!,
  (a, b) => withoutCarry(a, b) + [10, 100, 1, -1][draw(4)]!,
  (a, b) => Math.floor((a + b) / 10) * 10 + draw(10),
  () => draw(200),
];

function mistake(a: number, b: number): number {
  const answer = mistakes[draw(mistakes.length)]!(a, b);
  return answer === a + b || answer < 0 ? mistake(a, b) : answer;
}

const pairs = Array.from({ length: 20_000 }, (_, i) => ({ a: Math.floor(i / 100) % 100, b: i % 100 }))
  .map(({ a, b }) => ({ prompt: `${a}+${b}=?`, chosen: String(a + b), rejected: String(mistake(a, b)) }))
  .filter(({ prompt }) => !test.includes(`"${prompt}"`));
mkdirSync(folder, { recursive: true });
writeFileSync(join(folder, "pairs.jsonl"), pairs.map((pair) => `${JSON.stringify(pair)}\n`).join(""));
