/**
 * The text of a sample, from its tokens as they are sampled. Text that was returned is final.
 *
 * The sampler decides where a sample ends. Here the end is removed from the text: a token that ends it, and a stop text
 * with the rest of its last token. A token that may be the last, and characters that may be the beginning of a stop text,
 * are held back. The law: the joined pieces do not depend on how the tokens were pushed.
 */
import type { Sample } from "../rollout/request.ts";
import { overlap, streamDecoder } from "../text/stream.ts";
import type { Tokenizer } from "../text/tokenizer.ts";

export type TextRules = {
  readonly skipSpecialTokens: boolean;
  /** Special tokens that are shown nevertheless, such as `<tool_call>`. */
  readonly shown: readonly string[];
  readonly stop: readonly string[];
  /** Tokens that may end a sample. */
  readonly endIds: ReadonlySet<number>;
  /** Keep the stop text or token in the text. */
  readonly includesStop: boolean;
};

export type SampleText = {
  /** The text that became certain with this token. */
  push(id: number): string;
  /** The rest, when it is known how the sample ended. */
  end(sample: Pick<Sample, "finishReason" | "stopReason">): string;
};

/** Decode a sample token by token. */
export function sampleText(tokenizer: Tokenizer, rules: TextRules): SampleText {
  const isHidden = (id: number) => tokenizer.isSpecial(id) && !rules.shown.includes(tokenizer.pieceOf(id) ?? "");
  const decoder = streamDecoder({ ...tokenizer, isSpecial: isHidden }, rules);
  let held = "";
  let passed = 0; // where to search for stop texts in `held`: those that start before did not end the sample
  let lastId: number | null = null;
  const takeLast = () => {
    if (lastId !== null) held += decoder.push(lastId);
    lastId = null;
  };
  const findStop = () => Math.min(...rules.stop.map((stop) => held.indexOf(stop, passed) >>> 0)); // -1 becomes 2^32 - 1
  return {
    push(id) {
      for (let at = findStop(); at < held.length; at = findStop()) passed = at + 1; // the sample continued
      takeLast();
      if (rules.endIds.has(id)) lastId = id;
      else held += decoder.push(id);
      const unsure = Math.max(0, ...rules.stop.map((stop) => overlap(held, stop)));
      const sure = Math.min(findStop(), held.length - unsure);
      const given = held.slice(0, sure);
      held = held.slice(sure);
      passed = Math.max(0, passed - sure);
      return given;
    },
    end({ finishReason, stopReason }) {
      const isStopText = typeof stopReason === "string";
      if (finishReason !== "stop" || isStopText || rules.includesStop) takeLast();
      held += decoder.end();
      const at = isStopText ? held.indexOf(stopReason, passed) : -1;
      return at < 0 ? held : held.slice(0, at + (rules.includesStop ? String(stopReason).length : 0));
    },
  };
}

/** The whole text of a sample. */
export function wholeText(tokenizer: Tokenizer, sample: Sample, rules: TextRules): string {
  const text = sampleText(tokenizer, rules);
  return sample.ids.map((id) => text.push(id)).join("") + text.end(sample);
}
