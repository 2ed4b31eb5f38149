import fc from "fast-check";
import { describe, expect, test } from "vitest";
import type { Call, OpenLane } from "./lane.ts";
import { failed, type Outcome } from "./outcome.ts";
import { Pool } from "./pool.ts";
import type { RewardInput } from "./reward.ts";

const options = { lanes: 3, timeoutMs: 50, loadTimeoutMs: 1000 };
const sample = (response: string, row: number): RewardInput => ({
  dataSource: "toy",
  prompt: "",
  response,
  groundTruth: null,
  extraInfo: {},
  responseLength: 1,
  row,
});

/** What a call does: `.` is scored, `p` is scored later; `x` and `q` end the lane, at once and later; `h` hangs it. */
type Deed = "." | "p" | "x" | "q" | "h";

/** A lane without a process: it keeps the order and the silence of a real one. */
const toyLane: OpenLane = (say) => {
  let isOver = false;
  const soon = (act: () => void) => void setImmediate(() => isOver || act());
  const end = () => {
    isOver = true;
    say({ kind: "gone", message: "died" });
  };
  const answer = ({ id, inputs }: Call) => {
    const outcomes = inputs.map(({ row = 0 }): Outcome => ({ score: { score: row, extra: {} } }));
    say({ kind: "answer", id, outcomes });
  };
  const begin = (call: Call) => {
    const deed = call.inputs[0]?.response as Deed;
    if (deed === ".") answer(call);
    else if (deed === "x") end();
    else if (deed === "h") isOver = true;
    else {
      say({ kind: "pending", id: call.id });
      soon(() => soon(() => (deed === "p" ? answer(call) : end())));
    }
  };
  soon(() => say({ kind: "ready" }));
  return {
    send: (calls) =>
      soon(() => {
        say({ kind: "received" });
        for (const call of calls) if (!isOver) begin(call);
      }),
    async stop() {
      isOver = true;
    },
  };
};

/** The outcomes of some deeds asked for at once: the score of each, or why it has none. */
async function outcomesOf(deeds: readonly string[]): Promise<(number | string | undefined)[]> {
  const pool = await Pool.open(toyLane, options);
  const all = deeds.map((deed, row) => pool.run([sample(deed, row)]));
  const outcomes = await Promise.all(all);
  await pool.stop(new Error("over"));
  return outcomes.map(([outcome]) => outcome?.score?.score ?? outcome?.failure?.reason);
}

describe("whatever lanes do", () => {
  const reasons = { x: "crashed", q: "crashed", h: "deadline" };
  const expected = (deeds: readonly (keyof typeof reasons | "." | "p")[]) =>
    deeds.map((deed, row) => (deed === "." || deed === "p" ? row : reasons[deed]));

  test("each call has its own outcome, and only what ended a lane has none", async () => {
    const deeds = fc.array(fc.constantFrom(".", ".", ".", "p", "p", "x", "q"), { maxLength: 300 });
    await fc.assert(
      fc.asyncProperty(deeds, async (some) => {
        expect(await outcomesOf(some)).toEqual(expected(some));
      }),
      { numRuns: 50 },
    );
  });

  test("a lane that hangs is replaced after the deadline", async () => {
    const deeds = [".", "h", "p", ".", "x", "p", "q", "."] as const;
    expect(await outcomesOf(deeds)).toEqual(expected(deeds));
  });
});

test("a call is given up after three lanes that ended without beginning anything", async () => {
  const dying: OpenLane = (say) => {
    setImmediate(() => say({ kind: "ready" }));
    return { send: () => setImmediate(() => say({ kind: "gone", message: "died" })), async stop() {} };
  };
  const pool = await Pool.open(dying, options);
  const input = sample(".", 1);
  expect(await pool.run([input])).toEqual([failed(input, "crashed", "died")]);
  expect(pool.restarts).toBe(3);
  await pool.stop(new Error("over"));
});

test("a lane that cannot be loaded again later stops everything with its message", async () => {
  let opened = 0;
  const pool = await Pool.open(
    (say) => {
      if (opened++ === 0) return toyLane(say);
      setImmediate(() => say({ kind: "refused", message: "the file is gone" }));
      return { send() {}, async stop() {} };
    },
    { ...options, lanes: 1 },
  );
  const results = await Promise.allSettled([pool.run([sample("x", 0)]), pool.run([sample(".", 1)])]);
  expect(results).toMatchObject([
    { status: "fulfilled", value: [{ failure: { reason: "crashed" } }] },
    { status: "rejected", reason: { message: "the file is gone" } },
  ]);
});

test("a main thread that was busy longer than the deadline does not end lanes for it", async () => {
  const slow: OpenLane = (say) => {
    setImmediate(() => say({ kind: "ready" }));
    return {
      send(calls) {
        say({ kind: "received" });
        const done = () =>
          calls.map(({ id }) => say({ kind: "answer", id, outcomes: [{ score: { score: 1, extra: {} } }] }));
        setTimeout(done, 30);
      },
      async stop() {},
    };
  };
  const pool = await Pool.open(slow, { ...options, lanes: 1 });
  const call = pool.run([sample(".", 1)]);
  await new Promise((resolve) => setTimeout(resolve, 5));
  const start = performance.now();
  while (performance.now() - start < 200); // as a long step of the trainer would
  expect((await call)[0]?.score?.score).toBe(1);
  expect(pool.restarts).toBe(0);
  await pool.stop(new Error("over"));
});
