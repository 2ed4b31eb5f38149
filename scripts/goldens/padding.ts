/**
 * verl's padded layout of what a run keeps without padding: `pad_2d_list_to_length`, `compute_position_id_with_mask`,
 * `get_response_mask` and the agent loop's episodes. Flat arrays are row-major [batch, time].
 */
import { invariant, UserError } from "../../src/util/errors.ts";

/** A batch of rows padded to one length. */
type PaddedRows = {
  readonly batch: number;
  readonly time: number;
  readonly ids: Int32Array; // [batch, time]
  readonly attentionMask: Uint8Array; // [batch, time], 0 at padding
};

/** One sampled answer; `responseMask` is 0 at tokens the policy did not choose (tool output). */
type EpisodeTokens = {
  readonly promptIds: ArrayLike<number>;
  readonly responseIds: ArrayLike<number>;
  readonly responseMask: ArrayLike<number>;
  readonly responseLogprobs?: ArrayLike<number> | null;
};

/** One episode at fixed width: the prompt padded on the left, the response on the right. */
type PaddedEpisode = {
  readonly prompt: Int32Array; // [promptLength]
  readonly response: Int32Array; // [responseLength]
  readonly ids: Int32Array; // [promptLength + responseLength]
  readonly attentionMask: Uint8Array;
  readonly positionIds: Int32Array;
  readonly responseMask: Uint8Array; // [responseLength]
  readonly responseLogprobs: Float64Array | null; // [responseLength]
};

/** Rows filled with `padId` to `length`, or to the longest row if that is longer. */
export function padRows(
  rows: readonly ArrayLike<number>[],
  { padId, length = 0, side = "right" }: { padId: number; length?: number; side?: "left" | "right" },
): PaddedRows {
  const batch = rows.length;
  const time = rows.reduce((longest, row) => Math.max(longest, row.length), length);
  const ids = new Int32Array(batch * time).fill(padId);
  const attentionMask = new Uint8Array(batch * time);
  for (const [i, row] of rows.entries()) {
    const start = i * time + (side === "left" ? time - row.length : 0);
    ids.set(row, start);
    attentionMask.fill(1, start, start + row.length);
  }
  return { batch, time, ids, attentionMask };
}

/** Position of each token among the attended ones; it is 0 before the first, and does not change at a gap or after the end. */
export function positionIds(attentionMask: ArrayLike<number>): Int32Array {
  const positions = new Int32Array(attentionMask.length);
  let seen = 0;
  for (let i = 0; i < positions.length; i++) {
    seen += attentionMask[i]!;
    positions[i] = Math.max(0, seen - 1);
  }
  return positions;
}

/** 1 up to and including the first end-of-sequence token, 0 after it. */
export function responseMask(ids: ArrayLike<number>, eosIds: readonly number[]): Uint8Array {
  const mask = new Uint8Array(ids.length);
  for (let i = 0; i < ids.length; i++) {
    mask[i] = 1;
    if (eosIds.includes(ids[i]!)) break;
  }
  return mask;
}

/** One episode at fixed width, as verl's agent loop lays it out. */
export function padEpisode(
  episode: EpisodeTokens,
  { promptLength, responseLength, padId }: { promptLength: number; responseLength: number; padId: number },
): PaddedEpisode {
  const { promptIds, responseIds } = episode;
  if (promptIds.length > promptLength)
    throw new UserError(
      `A prompt has ${promptIds.length} tokens, and \`data.max_prompt_length\` is ${promptLength}. ` +
        "Raise it, or set `data.filter_overlong_prompts=true` to leave such prompts out.",
    );
  invariant(responseIds.length <= responseLength, "a response is at most responseLength tokens");
  invariant(episode.responseMask.length === responseIds.length, "the response mask has one entry per response token");
  const prompt = padRows([promptIds], { padId, length: promptLength, side: "left" });
  const response = padRows([responseIds], { padId, length: responseLength });
  const attentionMask = concatMasks(prompt.attentionMask, response.attentionMask);
  const ids = new Int32Array(promptLength + responseLength);
  ids.set(prompt.ids);
  ids.set(response.ids, promptLength);
  const mask = new Uint8Array(responseLength);
  mask.set(episode.responseMask);
  let logprobs: Float64Array | null = null;
  if (episode.responseLogprobs) {
    logprobs = new Float64Array(responseLength);
    logprobs.set(episode.responseLogprobs);
  }
  return {
    prompt: prompt.ids,
    response: response.ids,
    ids,
    attentionMask,
    positionIds: positionIds(attentionMask),
    responseMask: mask,
    responseLogprobs: logprobs,
  };
}

function concatMasks(a: Uint8Array, b: Uint8Array): Uint8Array {
  const joined = new Uint8Array(a.length + b.length);
  joined.set(a);
  joined.set(b, a.length);
  return joined;
}
