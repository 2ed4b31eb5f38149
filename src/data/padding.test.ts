import { describe, expect, test } from "vitest";
import { UserError } from "../util/errors.ts";
import { padEpisode, padRows, positionIds, responseMask, truncate } from "./padding.ts";

const ids = Int32Array.from([11, 12, 13, 14, 15, 16, 17]);

describe("truncation keeps the tokens that its mode says", () => {
  test.each([
    ["left", 5, [13, 14, 15, 16, 17]],
    ["right", 5, [11, 12, 13, 14, 15]],
    ["middle", 5, [11, 12, 15, 16, 17]],
    ["middle", 4, [11, 12, 16, 17]],
    ["error", 7, [...ids]],
  ] as const)("%s to %i", (mode, max, expected) => {
    expect([...truncate(ids, max, mode)]).toEqual(expected);
  });

  test("error refuses a sequence that is too long, with both lengths", () => {
    expect(() => truncate(ids, 5, "error")).toThrow(UserError);
    expect(() => truncate(ids, 5, "error")).toThrow("has 7 tokens, and at most 5");
  });
});

test("rows are padded on the given side, and the mask is 0 exactly at the padding", () => {
  const left = padRows([[1, 2], [3]], { padId: 9, length: 3, side: "left" });
  expect([...left.ids]).toEqual([9, 1, 2, 9, 9, 3]);
  expect([...left.attentionMask]).toEqual([0, 1, 1, 0, 0, 1]);
  const right = padRows([[1, 2, 3, 4], [5]], { padId: 0, length: 3 });
  expect(right.time).toBe(4);
  expect([...right.ids]).toEqual([1, 2, 3, 4, 5, 0, 0, 0]);
});

test("positions count attended tokens from 0 and stay at padding", () => {
  expect([...positionIds([0, 0, 1, 1, 1, 0])]).toEqual([0, 0, 0, 1, 2, 2]);
});

test("the response mask ends with the first end token, whichever it is", () => {
  expect([...responseMask([5, 1, 2, 5], [1, 2])]).toEqual([1, 1, 0, 0]);
  expect([...responseMask([5, 5], [2])]).toEqual([1, 1]);
});

test("an episode has its prompt on the left and its response on the right, joined without a gap", () => {
  const episode = { promptIds: [5, 6], responseIds: [7, 8], responseMask: [1, 0], responseLogprobs: [-0.5, -1] };
  const padded = padEpisode(episode, { promptLength: 3, responseLength: 3, padId: 0 });
  expect([...padded.ids]).toEqual([0, 5, 6, 7, 8, 0]);
  expect([...padded.positionIds]).toEqual([0, 0, 1, 2, 3, 3]);
  expect([...padded.responseMask]).toEqual([1, 0, 0]);
  expect([...(padded.responseLogprobs ?? [])]).toEqual([-0.5, -1, 0]);
  expect(() => padEpisode(episode, { promptLength: 1, responseLength: 3, padId: 0 })).toThrow("max_prompt_length");
});
