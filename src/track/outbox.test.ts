import { setTimeout as sleep } from "node:timers/promises";
import { describe, expect, test } from "vitest";
import { linesOf } from "../../test/tracking.ts";
import { Outbox, type OutboxOptions } from "./outbox.ts";

/** Somewhere to send numbers to that can go down, refuse, or never answer. */
class Place {
  readonly taken: number[] = [];
  state: "up" | "down" | "silent" = "up";
  readonly refused = new Set<number>();

  outbox(options: Partial<OutboxOptions<number>> = {}): Outbox<number> {
    return new Outbox({
      name: "place",
      sizeOf: () => 1,
      retryMs: 2,
      maxRetryMs: 4,
      closeMs: 300,
      send: async (item) => {
        await sleep(0);
        if (this.state === "down") throw new Error("it is down");
        if (this.state === "silent") await new Promise(() => {});
        if (this.refused.has(item)) return { refused: `it takes no ${item}` };
        this.taken.push(item);
        return undefined;
      },
      ...options,
    });
  }
}

const numbers = Array.from({ length: 50 }, (_, i) => i);

describe("an outbox", () => {
  test("delivers everything in order and prints nothing", async () => {
    const place = new Place();
    const said = await linesOf(async () => {
      const outbox = place.outbox();
      for (const n of numbers) outbox.put(n);
      expect(place.taken).toEqual([]); // put does not wait
      await outbox.close();
    });
    expect(place.taken).toEqual(numbers);
    expect(said).toEqual([]);
  });

  test("reports an outage once, and delivers the items of that time in order", async () => {
    const place = new Place();
    const said = await linesOf(async () => {
      const outbox = place.outbox();
      for (const n of numbers) {
        if (n === 10) place.state = "down";
        if (n === 40) place.state = "up";
        outbox.put(n);
        await sleep(1);
      }
      await outbox.close();
    });
    expect(place.taken).toEqual(numbers);
    expect(said).toEqual([
      expect.stringMatching(/^warning: place: it is down\. Training continues/),
      "place: works again.",
    ]);
  });

  test("continues after an item that is refused, and counts it", async () => {
    const place = new Place();
    place.refused.add(3).add(7);
    const said = await linesOf(async () => {
      const outbox = place.outbox();
      for (const n of numbers) outbox.put(n);
      await outbox.close();
    });
    expect(place.taken).toEqual(numbers.filter((n) => n !== 3 && n !== 7));
    expect(said).toEqual(["warning: place: it takes no 3", expect.stringContaining("2 records did not arrive")]);
  });

  test("keeps the newest items when it is full", async () => {
    const place = new Place();
    place.state = "down";
    const said = await linesOf(async () => {
      const outbox = place.outbox({ limitBytes: 8 });
      for (const n of numbers) outbox.put(n);
      await sleep(5);
      place.state = "up";
      await outbox.close();
    });
    expect(place.taken.at(-1)).toBe(49);
    expect(place.taken.slice(-8)).toEqual(numbers.slice(-8));
    expect(place.taken.length).toBeLessThanOrEqual(9); // one was on its way while the rest waited
    expect(said.at(-1)).toContain(`${50 - place.taken.length} records did not arrive`);
  });

  test.each(["down", "silent"] as const)("gives up at its deadline when the receiver is %s", async (state) => {
    const place = new Place();
    place.state = state;
    const outbox = place.outbox({ closeMs: 60 });
    const said = await linesOf(async () => {
      for (const n of numbers) outbox.put(n);
      const start = performance.now();
      await outbox.close();
      expect(performance.now() - start).toBeLessThan(1000);
    });
    expect(said.at(-1)).toContain("50 records did not arrive");
  });
});
