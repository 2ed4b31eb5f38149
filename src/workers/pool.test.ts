import fc from "fast-check";
import { describe, expect, test } from "vitest";
import type { Call, OpenLane } from "./lane.ts";
import { Pool } from "./pool.ts";
import { failedCall } from "./result.ts";

const options = { what: "the toy", lanes: 3, timeoutMs: 50, loadTimeoutMs: 1000 };

/** What a call does: `.` answers, `p` answers later; `x` and `q` end the lane, at once and later; `h` hangs it. */
type Action = "." | "p" | "x" | "q" | "h";
type Input = { readonly action: Action; readonly value: number };

/** A lane without a process: it keeps the order and the silence of a real one. */
const toyLane: OpenLane<Input, number> = (report) => {
  let isOver = false;
  const soon = (act: () => void) => void setImmediate(() => isOver || act());
  const end = () => {
    isOver = true;
    report({ kind: "gone", message: "died" });
  };
  const answer = ({ id, input }: Call<Input>) => report({ kind: "answer", id, result: { output: input.value } });
  const start = (call: Call<Input>) => {
    const { action } = call.input;
    if (action === ".") answer(call);
    else if (action === "x") end();
    else if (action === "h") isOver = true;
    else {
      report({ kind: "pending", id: call.id });
      soon(() => soon(() => (action === "p" ? answer(call) : end())));
    }
  };
  soon(() => report({ kind: "ready" }));
  return {
    send: (calls) =>
      soon(() => {
        report({ kind: "received" });
        for (const call of calls) if (!isOver) start(call);
      }),
    async stop() {
      isOver = true;
    },
  };
};

/** The results of calls that are made together: the output of each, or the reason why it has none. */
async function resultsOf(actions: readonly Action[]): Promise<(number | string)[]> {
  const pool = await Pool.open(toyLane, options);
  const results = await Promise.all(actions.map((action, value) => pool.run({ action, value })));
  await pool.stop(new Error("over"));
  return results.map(({ output, failure }) => output ?? failure.reason);
}

describe("whatever lanes do", () => {
  const reasons = { x: "crashed", q: "crashed", h: "deadline" };
  const expected = (actions: readonly Action[]) =>
    actions.map((action, value) => (action === "." || action === "p" ? value : reasons[action]));

  test("each call has its own result, and only what ended a lane has no output", async () => {
    const some = fc.array(fc.constantFrom<Action[]>(".", ".", ".", "p", "p", "x", "q"), { maxLength: 300 });
    await fc.assert(
      fc.asyncProperty(some, async (actions) => {
        expect(await resultsOf(actions)).toEqual(expected(actions));
      }),
      { numRuns: 50 },
    );
  });

  test("a lane that hangs is replaced after the deadline", async () => {
    const actions = [".", "h", "p", ".", "x", "p", "q", "."] as const;
    expect(await resultsOf(actions)).toEqual(expected(actions));
  });
});

test("a call is given up after three lanes that ended before they started it", async () => {
  const dying: OpenLane<Input, number> = (report) => {
    setImmediate(() => report({ kind: "ready" }));
    return { send: () => setImmediate(() => report({ kind: "gone", message: "died" })), async stop() {} };
  };
  const pool = await Pool.open(dying, options);
  expect(await pool.run({ action: ".", value: 1 })).toEqual(failedCall("crashed", "died"));
  expect(pool.restarts).toBe(3);
  await pool.stop(new Error("over"));
});

test("a lane that cannot be loaded again later stops everything with its message", async () => {
  let opened = 0;
  const pool = await Pool.open(
    (report) => {
      if (opened++ === 0) return toyLane(report);
      setImmediate(() => report({ kind: "refused", message: "the file is gone" }));
      return { send() {}, async stop() {} };
    },
    { ...options, lanes: 1 },
  );
  const results = await Promise.allSettled([pool.run({ action: "x", value: 0 }), pool.run({ action: ".", value: 1 })]);
  expect(results).toMatchObject([
    { status: "fulfilled", value: { failure: { reason: "crashed" } } },
    { status: "rejected", reason: { message: "the file is gone" } },
  ]);
});

test("a main thread that was busy longer than the deadline does not end lanes for it", async () => {
  const slow: OpenLane<Input, number> = (report) => {
    setImmediate(() => report({ kind: "ready" }));
    return {
      send(calls) {
        report({ kind: "received" });
        const done = () => calls.map(({ id }) => report({ kind: "answer", id, result: { output: 1 } }));
        setTimeout(done, 30);
      },
      async stop() {},
    };
  };
  const pool = await Pool.open(slow, { ...options, lanes: 1 });
  const call = pool.run({ action: ".", value: 1 });
  await new Promise((resolve) => setTimeout(resolve, 5));
  const start = performance.now();
  while (performance.now() - start < 200); // as a long step of the trainer would
  expect((await call).output).toBe(1);
  expect(pool.restarts).toBe(0);
  await pool.stop(new Error("over"));
});
