import { setTimeout as sleep } from "node:timers/promises";
import { expect, test } from "vitest";
import { inFlight } from "./in-flight.ts";

const items = Array.from({ length: 20 }, (_, i) => i);
const never = new AbortController().signal;

test("every item is done once, started in order, never more than the limit at a time", async () => {
  const begun: number[] = [];
  let running = 0;
  let most = 0;
  await inFlight(items, { limit: 3, signal: never }, async (item) => {
    begun.push(item);
    most = Math.max(most, ++running);
    await sleep(1);
    running--;
  });
  expect(begun).toEqual(items);
  expect(most).toBe(3);
});

test("the first error stops the others, and is thrown when they have ended", async () => {
  let begun = 0;
  let ended = 0;
  const work = inFlight(items, { limit: 4, signal: never }, async (item, signal) => {
    begun++;
    try {
      if (item === 5) throw new Error("five");
      await sleep(item < 4 ? 1 : 10_000, undefined, { signal });
    } finally {
      ended++;
    }
  });
  await expect(work).rejects.toThrow("five");
  expect(ended).toBe(begun);
  expect(begun).toBeLessThan(items.length);
});

test("an abort is thrown as the reason of the signal", async () => {
  const controller = new AbortController();
  const work = inFlight(items, { limit: 2, signal: controller.signal }, async (item, signal) => {
    if (item === 1) controller.abort(new Error("enough"));
    await sleep(10_000, undefined, { signal });
  });
  await expect(work).rejects.toThrow("enough");
});
