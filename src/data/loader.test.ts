import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { UserError } from "../util/errors.ts";
import { Loader, type LoaderOptions } from "./loader.ts";

const options = fc
  .record({
    rows: fc.integer({ min: 1, max: 60 }),
    batchSize: fc.integer({ min: 1, max: 20 }),
    shuffle: fc.boolean(),
    seed: fc.integer({ min: 0, max: 1000 }),
    dropLast: fc.boolean(),
  })
  .filter(({ rows, batchSize, dropLast }) => !dropLast || rows >= batchSize);

const take = (loader: Loader, count: number) => Array.from({ length: count }, () => loader.next());

describe("a loader", () => {
  test("that is resumed gives the same batches as one that was not interrupted", () => {
    fc.assert(
      fc.property(options, fc.nat(30), fc.nat(30), (loaderOptions, before, after) => {
        const uninterrupted = take(new Loader(loaderOptions), before + after);
        const first = new Loader(loaderOptions);
        take(first, before);
        const second = new Loader(loaderOptions);
        second.restore(JSON.parse(JSON.stringify(first.state())));
        expect(take(second, after)).toEqual(uninterrupted.slice(before));
      }),
    );
  });

  test("takes rows that are added from the next epoch on, also after it is resumed", () => {
    const three = { rows: 3, batchSize: 2, shuffle: true, seed: 1, dropLast: false };
    const grown = (loader: Loader) => Array.from({ length: 5 }, () => loader.next(7));
    const whole = new Loader(three);
    const first = [whole.next(), ...grown(whole)];
    expect(first[1]?.indices).toHaveLength(1); // the rest of the first epoch
    expect(
      first
        .slice(2, 6)
        .flatMap(({ indices }) => indices)
        .toSorted(),
    ).toEqual([0, 1, 2, 3, 4, 5, 6]);
    const stopped = new Loader(three);
    const parts = [stopped.next(), stopped.next(7), stopped.next(7)];
    const resumed = new Loader(three);
    resumed.restore(JSON.parse(JSON.stringify(stopped.state())), 7);
    expect([...parts, resumed.next(9), resumed.next(9), resumed.next(9)]).toEqual(first);
    expect(() => new Loader(three).restore(stopped.state(), 6)).toThrow(
      "made with 7 training rows, and now there are 3",
    );
  });

  test("gives every row once per epoch, except those that dropLast leaves out", () => {
    fc.assert(
      fc.property(options, (loaderOptions) => {
        const loader = new Loader(loaderOptions);
        const epoch = take(loader, loader.batchesPerEpoch);
        const seen = epoch.flatMap(({ indices }) => indices);
        const { rows, batchSize, dropLast } = loaderOptions;
        expect(new Set(seen).size).toBe(seen.length);
        expect(seen).toHaveLength(dropLast ? rows - (rows % batchSize) : rows);
        expect(epoch.map(({ isEpochEnd }) => isEpochEnd)).toEqual(epoch.map((_, i) => i === epoch.length - 1));
        expect(loader.next().epoch).toBe(1);
      }),
    );
  });

  const fifty: LoaderOptions = { rows: 50, batchSize: 50, shuffle: true, seed: 1, dropLast: true };
  test("shuffles each epoch and each seed differently", () => {
    const [first, second] = take(new Loader(fifty), 2);
    expect(first?.indices).not.toEqual(second?.indices);
    expect(new Loader({ ...fifty, seed: 2 }).next().indices).not.toEqual(first?.indices);
  });

  test("without shuffle goes through the rows in order", () => {
    expect(new Loader({ ...fifty, shuffle: false }).next().indices).toEqual(Array.from({ length: 50 }, (_, i) => i));
  });

  test.each<[string, Partial<LoaderOptions>, string]>([
    ["other rows", { rows: 51 }, "made with 50 training rows, and now there are 51"],
    ["another seed", { seed: 2 }, "seed 1, and now they are true and 2"],
    ["another order", { shuffle: false }, "shuffle true"],
  ])("refuses a position that was saved with %s", (_name, change, message) => {
    const state = new Loader(fifty).state();
    const loader = new Loader({ ...fifty, ...change });
    expect(() => loader.restore(state)).toThrow(UserError);
    expect(() => loader.restore(state)).toThrow(message);
  });

  test("refuses a position that is not valid", () => {
    expect(() => new Loader(fifty).restore({ epoch: -1 })).toThrow(UserError);
    expect(() => new Loader(fifty).restore(undefined)).toThrow(UserError);
  });

  test("refuses fewer rows than a batch, and no rows", () => {
    expect(() => new Loader({ ...fifty, rows: 49 })).toThrow("There are 49 rows, which is less than one batch of 50");
    expect(() => new Loader({ ...fifty, rows: 0, dropLast: false })).toThrow(UserError);
  });
});
