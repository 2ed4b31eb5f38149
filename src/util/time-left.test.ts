import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { TimeLeft } from "./time-left.ts";

beforeEach(() => {
  vi.useFakeTimers({ toFake: ["performance"] });
});
afterEach(() => {
  vi.useRealTimers();
});

/** The text after each step of a run, given how many seconds each step took. */
function saidAfter(secondsOfSteps: readonly number[], { done = 0, total = 10 } = {}): string[] {
  const timeLeft = new TimeLeft(done, total);
  return secondsOfSteps.map((seconds, i) => {
    vi.advanceTimersByTime(1000 * seconds);
    timeLeft.ended(done + i + 1);
    return timeLeft.text();
  });
}

test("there is no text before the first step and after the last", () => {
  expect(new TimeLeft(3, 10).text()).toBe("");
  expect(saidAfter([1, 1], { total: 2 }).at(-1)).toBe("");
});

test("the first step, which compiles, counts only while it is the only one", () => {
  expect(saidAfter([20, 2, 2, 4])).toEqual(["3m00s left", "16s left", "14s left", "16s left"]);
});

test("steps of an earlier process count as done, not as fast", () => {
  expect(saidAfter([3, 2], { done: 6 })).toEqual(["9s left", "4s left"]);
});

test("the time gets shorter during a step, and is never negative", () => {
  const timeLeft = new TimeLeft(0, 3);
  vi.advanceTimersByTime(5000);
  timeLeft.ended(1);
  vi.advanceTimersByTime(4000);
  expect(timeLeft.text()).toBe("6s left");
  vi.advanceTimersByTime(60_000);
  expect(timeLeft.text()).toBe("0s left");
});
