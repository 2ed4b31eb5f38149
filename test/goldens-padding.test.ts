/** verl's padded layout, which the golden files of datasets and episodes are written in. */
import { expect, test } from "vitest";
import { padEpisode, padRows, positionIds, responseMask } from "../scripts/goldens/padding.ts";

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
