import { setImmediate as tick } from "node:timers/promises";
import * as fc from "fast-check";
import { expect, test } from "vitest";
import { exclusive } from "./exclusive.ts";

test("work runs in the order it was asked for, one at a time, and a failure does not stop the rest", async () => {
  await fc.assert(
    fc.asyncProperty(
      fc.array(fc.record({ ticks: fc.nat(3), fails: fc.boolean() }), { maxLength: 8 }),
      async (works) => {
        const run = exclusive();
        const events: string[] = [];
        const results = works.map(({ ticks, fails }, i) =>
          run(async () => {
            events.push(`start ${i}`);
            for (let t = 0; t < ticks; t++) await tick();
            events.push(`end ${i}`);
            if (fails) throw new Error(`work ${i}`);
            return i;
          }),
        );
        const settled = await Promise.allSettled(results);
        expect(events).toEqual(works.flatMap((_, i) => [`start ${i}`, `end ${i}`]));
        expect(settled.map((one) => (one.status === "fulfilled" ? one.value : one.reason.message))).toEqual(
          works.map(({ fails }, i) => (fails ? `work ${i}` : i)),
        );
      },
    ),
    { numRuns: 30 },
  );
});
