import { describe, expect, test } from "vitest";
import { managerRule, rewardColumns, tokenRewards } from "./placement.ts";

const buffer = { enable: true, len: 4, penalty_factor: 1, log: true };
const dapo = managerRule("dapo", { overlong_buffer_cfg: buffer, max_resp_len: 16 });

describe("a reward on tokens", () => {
  test("is on the last token", () => {
    expect([...tokenRewards({ score: 0.5, extra: {} }, 3)]).toEqual([0, 0, 0.5]);
  });

  test("of every token stays where it is", () => {
    expect([...tokenRewards({ score: 3, tokens: [1, 2], extra: {} }, 2)]).toEqual([1, 2]);
  });

  test("is nowhere in an empty response", () => {
    expect([...tokenRewards({ score: 1, extra: {} }, 0)]).toEqual([]);
  });

  test("adds up to the score", () => {
    for (let length = 1; length <= 20; length++) {
      for (const given of [
        { score: 1, extra: {} },
        { score: length, tokens: Array(length).fill(1), extra: {} },
      ]) {
        const { score, ...rest } = dapo(given, length);
        const sum = tokenRewards({ score, ...rest }, length).reduce((total, it) => total + it, 0);
        expect(sum).toBeCloseTo(score, 12);
      }
    }
  });
});

describe("columns", () => {
  test("have one entry per response, null where a scorer does not give them", () => {
    const scores = [
      { score: 1, extra: { acc: true, pred: "4" } },
      { score: 0, extra: { acc: 0 } },
    ];
    expect(rewardColumns(scores)).toEqual({ acc: [true, 0], pred: ["4", null] });
  });

  test("of a plain score are its accuracy, of one with columns also the score itself", () => {
    const naive = managerRule("naive");
    expect(naive({ score: 0.5, extra: {} }, 3).extra).toEqual({ acc: 0.5 });
    expect(naive({ score: -1, extra: { acc: false } }, 3).extra).toEqual({ score: -1, acc: false });
    expect(naive({ score: 3, tokens: [1, 2], extra: {} }, 2).extra).toEqual({});
  });
});

describe("the manager dapo", () => {
  test.each([
    [1, 0],
    [12, 0],
    [13, -0.25],
    [14, -0.5],
    [16, -1],
    [20, -2],
  ])("takes off for %i tokens of 16 what is over the first 12, by quarters: %d", (length, penalty) => {
    const { score, extra } = dapo({ score: 1, extra: { acc: true } }, length);
    expect(score).toBeCloseTo(1 + penalty, 12);
    expect(extra).toEqual({ score: 1, acc: true, overlong_reward: expect.closeTo(penalty), overlong: penalty < 0 });
  });

  test.each([
    ["no buffer", {}],
    ["a buffer that is null", { overlong_buffer_cfg: null }],
    ["a buffer that is off", { overlong_buffer_cfg: { ...buffer, enable: false } }],
  ])("takes nothing off with %s", (_, options) => {
    expect(managerRule("dapo", options)({ score: 1, extra: {} }, 1000)).toEqual({ score: 1, extra: { acc: 1 } });
  });

  test("has no penalty for an empty response", () => {
    expect(dapo({ score: 0, tokens: [], extra: {} }, 0)).toMatchObject({ score: 0, tokens: [] });
  });

  test("adds no columns about length unless they are to be logged", () => {
    const quiet = managerRule("dapo", { overlong_buffer_cfg: { ...buffer, log: false }, max_resp_len: 16 });
    expect(quiet({ score: 1, extra: {} }, 14)).toEqual({ score: 0.5, extra: { acc: 1 } });
  });
});

test.each([
  [
    "an unknown manager",
    "navie",
    {},
    '`reward_model.reward_manager` is "navie", which does not exist. Did you mean "naive"?',
  ],
  ["a buffer without a limit", "dapo", { overlong_buffer_cfg: buffer }, "max_resp_len` is not set"],
  [
    "a buffer longer than a response",
    "dapo",
    { overlong_buffer_cfg: buffer, max_resp_len: 3 },
    "len` is 4, and a response has at most 3",
  ],
  ["an empty buffer", "dapo", { overlong_buffer_cfg: { ...buffer, len: 0 }, max_resp_len: 3 }, "len` is 0"],
])("%s is refused with its value", (_, name, options, message) => {
  expect(() => managerRule(name, options)).toThrow(message);
});
