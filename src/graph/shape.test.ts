/** The algebra of dimensions agrees with the algebra of the numbers they stand for. */
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { GraphError } from "../util/errors.ts";
import {
  broadcast,
  type Dim,
  dim,
  evaluate,
  evaluateShape,
  factorOf,
  minus,
  over,
  plus,
  product,
  sameShape,
  termsOf,
  times,
} from "./shape.ts";

const names = ["batch", "span", "time"];
const bindings = fc.record({ batch: fc.nat(9), span: fc.nat(9), time: fc.nat(9) });
const symbols = fc.array(fc.constantFrom(...names), { maxLength: 3 });
const factor = fc.nat(12);
const terms = fc.tuple(factor, symbols).map(([f, s]) => [f, ...s].join("*"));
const dims = fc.array(terms, { minLength: 1, maxLength: 3 }).map((some) => dim(some.join("+")));

describe("dimensions", () => {
  test("a product stands for the product of the numbers", () => {
    fc.assert(
      fc.property(dims, dims, bindings, (a, b, bound) => {
        expect(evaluate(times(a, b), bound)).toBe(evaluate(a, bound) * evaluate(b, bound));
      }),
    );
  });

  test("the order of factors does not matter, and equal products have one spelling", () => {
    fc.assert(
      fc.property(dims, dims, dims, (a, b, c) => {
        expect(times(a, b)).toBe(times(b, a));
        expect(times(times(a, b), c)).toBe(times(a, times(b, c)));
        expect(product([a, b, c])).toBe(times(a, times(b, c)));
      }),
    );
  });

  test("products distribute over sums", () => {
    fc.assert(
      fc.property(dims, dims, dims, (a, b, c) => {
        expect(times(a, plus(b, c))).toBe(plus(times(a, b), times(a, c)));
      }),
    );
  });

  test("sums and differences stand for those of the numbers, and undo each other", () => {
    fc.assert(
      fc.property(dims, dims, bindings, (a, b, bound) => {
        const total = plus(a, b);
        expect(plus(b, a)).toBe(total);
        expect(evaluate(total, bound)).toBe(evaluate(a, bound) + evaluate(b, bound));
        expect(minus(total, b)).toBe(a);
        expect(minus(total, a)).toBe(b);
      }),
    );
  });

  test("zero is neutral in sums with anything", () => {
    fc.assert(
      fc.property(dims, (a) => {
        expect([plus(a, 0), plus(0, a), minus(a, 0)]).toEqual([a, a, a]);
        expect(minus(a, a)).toBe(0);
      }),
    );
  });

  test("over undoes times with a number", () => {
    fc.assert(
      fc.property(dims, fc.integer({ min: 1, max: 9 }), (a, n) => {
        expect(over(times(a, n), n)).toBe(a);
        expect(factorOf(times(a, n))).toBe(factorOf(a) * n);
      }),
    );
  });

  test("a dimension is the sum of its terms, and canonical spelling changes nothing", () => {
    fc.assert(
      fc.property(dims, (a) => {
        expect(
          termsOf(a)
            .map(({ factor, symbols }) => product([factor, ...symbols]))
            .reduce(plus),
        ).toBe(a);
        expect(dim(a)).toBe(a);
      }),
    );
  });

  test.each<[Dim, Dim]>([
    ["time*batch", "batch*time"],
    ["span*4", "4*span"],
    ["2*span*3", "6*span"],
    ["1*n", "n"],
    ["0*n", 0],
    ["time+2*batch+time", "2*batch+2*time"],
    ["n+0", "n"],
    ["3+4", 7],
  ])("%s is spelt %s", (given, canonical) => {
    expect(dim(given)).toBe(canonical);
  });

  test("no dimension is below zero", () => {
    expect(() => minus("4*span", "batch")).toThrow(GraphError);
    expect(() => minus("span", "2*span")).toThrow(new GraphError("", "span - 2*span is not a dimension"));
    expect(() => minus(2, 3)).toThrow(GraphError);
  });

  test("a symbol that is not bound is named", () => {
    expect(() => evaluate("4*span", { batch: 2 })).toThrow("the dimension `span` of 4*span is not bound");
  });
});

describe("shapes", () => {
  const shapes = fc.array(fc.oneof(fc.constant(1), fc.constantFrom<Dim>(2, 3, "n", "2*n")), { maxLength: 4 });

  test("broadcasting is symmetric, and with itself or a scalar a shape stays as it is", () => {
    fc.assert(
      fc.property(shapes, shapes, (a, b) => {
        expect(broadcast(a, b)).toEqual(broadcast(b, a));
        expect(broadcast(a, a)).toEqual(a);
        expect(broadcast(a, [])).toEqual(a);
      }),
    );
  });

  test("a broadcast shape has the larger size on every axis", () => {
    fc.assert(
      fc.property(shapes, shapes, (a, b) => {
        const both = broadcast(a, b);
        if (both === null) return;
        const bound = { n: 5 };
        const padded = (shape: readonly Dim[]) =>
          evaluateShape([...Array(both.length - shape.length).fill(1), ...shape], bound);
        const larger = padded(a).map((size, axis) => Math.max(size, padded(b)[axis]!));
        expect(evaluateShape(both, bound)).toEqual(larger);
      }),
    );
  });

  test("sizes that differ and are not 1 cannot be broadcast", () => {
    expect(broadcast([2, 3], [2])).toBeNull();
    expect(broadcast(["n"], ["m"])).toBeNull();
    expect(sameShape(["n", 3], ["n", 3])).toBe(true);
    expect(sameShape(["n", 3], ["n"])).toBe(false);
  });
});
