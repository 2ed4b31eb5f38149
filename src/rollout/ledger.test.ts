import * as fc from "fast-check";
import { describe, expect, test } from "vitest";
import { appendGiven, appendSampled, type Ledger, type LedgerSample, singleTurn, startLedger } from "./ledger.ts";

type Append =
  | { readonly kind: "sampled"; readonly sample: LedgerSample; readonly version: number }
  | { readonly kind: "given"; readonly ids: readonly number[]; readonly role: string };

const tokenId = fc.integer({ min: 0, max: 2 ** 31 - 1 });
const tokenIds = fc.array(tokenId, { maxLength: 6 });
const sampled = fc
  .record({
    tokens: fc.array(fc.tuple(tokenId, fc.double({ min: -50, max: 0, noNaN: true })), { maxLength: 6 }),
    finishReason: fc.constantFrom("stop" as const, "length" as const),
    version: fc.integer({ min: 0, max: 3 }),
    widths: fc.dictionary(fc.constantFrom("a", "b"), fc.constant(null)),
  })
  .map(({ tokens, finishReason, version, widths }): Append => {
    const columns = Object.fromEntries(
      Object.keys(widths).map((name) => {
        const width = name === "a" ? 1 : 3;
        return [name, { width, values: Array.from({ length: tokens.length * width }, (_, i) => i + 1) }];
      }),
    );
    const ids = tokens.map(([id]) => id);
    const logprobs = tokens.map(([, logprob]) => logprob);
    return { kind: "sampled", version, sample: { ids, logprobs, finishReason, columns } };
  });
const given = fc
  .record({ ids: tokenIds, role: fc.constantFrom("user", "tool") })
  .map(({ ids, role }): Append => ({ kind: "given", ids, role }));
const appends = fc.array(fc.oneof(sampled, given), { maxLength: 8 });

const apply = (ledger: Ledger, append: Append): Ledger =>
  append.kind === "sampled"
    ? appendSampled(ledger, append.sample, append.version)
    : appendGiven(ledger, append.ids, append.role);

const idsOf = (append: Append) => (append.kind === "sampled" ? append.sample.ids : append.ids);

/** The version of token `at` by the spans. */
const versionAt = ({ versions }: Ledger, at: number) => versions.findLast(({ start }) => start <= at)?.version;

/** Check a property of the ledger that a prompt and appends make. */
function check(property: (ledger: Ledger, prompt: readonly number[], appends: readonly Append[]) => void): void {
  fc.assert(
    fc.property(tokenIds, appends, (prompt, list) => {
      property(list.reduce(apply, startLedger(prompt)), prompt, list);
    }),
  );
}

describe("a ledger", () => {
  test("has one entry of everything per token, and its width of every column", () => {
    check(({ ids, drawn, logprobs, columns }, prompt, list) => {
      expect(ids.length).toBe(prompt.length + list.reduce((sum, append) => sum + idsOf(append).length, 0));
      expect([drawn.length, logprobs.length]).toEqual([ids.length, ids.length]);
      for (const { width, values } of Object.values(columns)) expect(values.length).toBe(ids.length * width);
    });
  });

  test("holds the prompt and then what was appended, in order", () => {
    check(({ ids, promptLength }, prompt, list) => {
      expect([...ids]).toEqual([...prompt, ...list.flatMap(idsOf)]);
      expect(promptLength).toBe(prompt.length);
    });
  });

  test("marks exactly the sampled tokens as drawn, with the log-probs they were sampled with", () => {
    check(({ drawn, logprobs }, prompt, list) => {
      const expected = [
        ...prompt.map(() => [0, 0]),
        ...list.flatMap((append) =>
          append.kind === "sampled"
            ? append.sample.logprobs.map((logprob) => [1, logprob])
            : append.ids.map(() => [0, 0]),
        ),
      ];
      expect(Array.from(drawn, (one, at) => [one, logprobs[at]])).toEqual(expected);
    });
  });

  test("has turns that cover everything after the prompt, one per append", () => {
    check(({ ids, promptLength, turns }, _, list) => {
      expect(turns.length).toBe(list.length);
      let at = promptLength;
      turns.forEach((turn, i) => {
        const append = list[i]!;
        expect([turn.start, turn.end]).toEqual([at, at + idsOf(append).length]);
        expect(turn.role).toBe(append.kind === "sampled" ? "assistant" : append.role);
        expect(turn.finishReason).toBe(append.kind === "sampled" ? append.sample.finishReason : null);
        at = turn.end;
      });
      expect(at).toBe(ids.length);
    });
  });

  test("knows the version of the weights of every drawn token", () => {
    check((ledger, prompt, list) => {
      let at = prompt.length;
      for (const append of list) {
        for (const _ of idsOf(append)) {
          if (append.kind === "sampled") expect(versionAt(ledger, at)).toBe(append.version);
          at++;
        }
      }
      const starts = ledger.versions.map(({ start }) => start);
      expect(starts).toEqual([...new Set(starts)].sort((a, b) => a - b));
      for (const start of starts) expect(ledger.drawn[start]).toBe(1);
    });
  });

  test("keeps columns at their tokens and has 0 elsewhere", () => {
    check((ledger, prompt, list) => {
      for (const [name, { width, values }] of Object.entries(ledger.columns)) {
        const expected = [
          ...prompt.flatMap(() => new Array<number>(width).fill(0)),
          ...list.flatMap((append) => {
            const column = append.kind === "sampled" ? append.sample.columns?.[name] : undefined;
            return column === undefined
              ? new Array<number>(idsOf(append).length * width).fill(0)
              : [...Array.from(column.values)];
          }),
        ];
        expect([...values]).toEqual(expected);
      }
    });
  });

  test("is never shortened or changed: each one begins with the one before it", () => {
    fc.assert(
      fc.property(tokenIds, appends, (prompt, list) => {
        let ledger = startLedger(prompt);
        for (const append of list) {
          const before = structuredClone(ledger);
          const next = apply(ledger, append);
          expect(ledger).toEqual(before);
          expect(next.ids.subarray(0, ledger.ids.length)).toEqual(ledger.ids);
          expect(next.drawn.subarray(0, ledger.ids.length)).toEqual(ledger.drawn);
          expect(next.logprobs.subarray(0, ledger.ids.length)).toEqual(ledger.logprobs);
          expect(next.turns.slice(0, ledger.turns.length)).toEqual(ledger.turns);
          expect(next.versions.slice(0, ledger.versions.length)).toEqual(ledger.versions);
          ledger = next;
        }
      }),
    );
  });

  test("of a single answer is the prompt and one sampled turn", () => {
    const sample: LedgerSample = { ids: [7, 8], logprobs: [-0.5, -0.25], finishReason: "stop" };
    expect(singleTurn([1, 2, 3], sample, 4)).toEqual({
      ids: Int32Array.of(1, 2, 3, 7, 8),
      promptLength: 3,
      drawn: Uint8Array.of(0, 0, 0, 1, 1),
      logprobs: Float64Array.of(0, 0, 0, -0.5, -0.25),
      versions: [{ start: 3, version: 4 }],
      columns: {},
      turns: [{ role: "assistant", start: 3, end: 5, finishReason: "stop", reward: null }],
    });
  });

  test("refuses log-probs and columns that do not fit the tokens", () => {
    const start = startLedger([1]);
    const sample: LedgerSample = { ids: [2], logprobs: [-1], finishReason: "stop" };
    const wide = (width: number, values: number[]) => ({ ...sample, columns: { top: { width, values } } });
    expect(() => appendSampled(start, { ...sample, logprobs: [] }, 0)).toThrow("1 sampled tokens have 0 log-probs");
    expect(() => appendSampled(start, wide(2, [1]), 0)).toThrow("column top has 1 numbers");
    const ledger = appendSampled(start, wide(2, [1, 2]), 0);
    expect(() => appendSampled(ledger, wide(1, [1]), 0)).toThrow("column top is 2 wide, not 1");
  });
});
