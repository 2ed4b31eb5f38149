import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { mirrorTo } from "../util/log.ts";
import { Progress } from "./progress.ts";

const second = 1000;
let lines: string[] = [];
let stopListening = () => {};
beforeEach(() => {
  vi.useFakeTimers();
  vi.spyOn(process.stderr, "write").mockReturnValue(true);
  lines = [];
  stopListening = mirrorTo((line) => lines.push(line));
});
afterEach(() => {
  stopListening();
  vi.restoreAllMocks();
  vi.useRealTimers();
});

describe("the heartbeat", () => {
  test("names what one waits for and since when, once a minute", () => {
    using progress = new Progress(1, 9);
    progress.begin(3);
    progress.say("waiting for the rewards of 2 of 16 responses");
    vi.advanceTimersByTime(59 * second);
    expect(lines).toEqual([]);
    vi.advanceTimersByTime(121 * second);
    const waiting = "Step 3/9: waiting for the rewards of 2 of 16 responses, for";
    expect(lines).toEqual(["1m00s", "2m00s", "3m00s"].map((time) => `${waiting} ${time} now.`));
  });

  test("says nothing while things move on, however long they take in all", () => {
    using progress = new Progress(1, 9);
    progress.begin(1);
    const report = progress.phase("updating the actor");
    for (let done = 0; done < 30; done++) {
      report(done, 30);
      vi.advanceTimersByTime(20 * second);
    }
    expect(lines).toEqual([]);
  });

  test("counts from when a thing began, also where it is named again and again", () => {
    using progress = new Progress(1, 9);
    progress.begin(1);
    vi.advanceTimersByTime(30 * second);
    for (let i = 0; i < 9; i++) {
      progress.say("saving");
      vi.advanceTimersByTime(10 * second);
    }
    expect(lines).toEqual(["Step 1/9: saving, for 1m30s now."]);
  });

  test("is silent once the run is over", () => {
    const progress = new Progress(1, 9);
    progress[Symbol.dispose]();
    vi.advanceTimersByTime(600 * second);
    expect(lines).toEqual([]);
  });
});
