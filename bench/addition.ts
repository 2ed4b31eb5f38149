/** Single-digit addition: a task that small models solve in part, with an exact reward. */
import type { RewardInput } from "../src/rewards/reward.ts";

export const sums: readonly (readonly [number, number])[] = Array.from({ length: 100 }, (_, i) => [
  Math.floor(i / 10),
  i % 10,
]);

/** Rows in verl's columns. */
export function additionRows(ask: (a: number, b: number) => string): Record<string, unknown>[] {
  return sums.map(([a, b]) => ({
    data_source: "addition",
    prompt: [{ role: "user", content: ask(a, b) }],
    reward_model: { style: "rule", ground_truth: String(a + b) },
  }));
}

/** 1 where the number after the first equals sign, or the last number where there is none, is the sum. */
export function isRight({ response, groundTruth }: Pick<RewardInput, "response" | "groundTruth">): number {
  const after = /=(.*)/s.exec(response)?.[1];
  const numbers = (after ?? response).match(/\d+/g);
  return (after === undefined ? numbers?.at(-1) : numbers?.[0]) === groundTruth ? 1 : 0;
}
