/**
 * The text of a sample as it grows, and the stop texts that end it. Text that could still become part of a stop text is
 * held back, so that text once returned is never withdrawn.
 *
 * The stop text that is completed first ends the sample, so the result does not depend on how the text is split into
 * tokens.
 */
import { type Decodable, streamDecoder } from "../text/stream.ts";

export type StreamedText = {
  /** Text that is certain now. */
  readonly text: string;
  /** The stop text that was completed; the sample's text ends before it. */
  readonly stop: string | null;
};

export type TextStream = {
  /** Decode one more token. A stop text that it completes only counts if `canStop`. */
  push(id: number, canStop?: boolean): StreamedText;
  /** The text that was held back, when no token follows. */
  end(canStop?: boolean): StreamedText;
};

/** Decode a sample's tokens as they come. */
export function textStream(tokenizer: Decodable, stops: readonly string[] = []): TextStream {
  const decoder = streamDecoder(tokenizer, { skipSpecialTokens: true });
  let held = "";
  const append = (more: string, canStop: boolean, isEnd: boolean): StreamedText => {
    const searched = held.length;
    held += more;
    const met = canStop ? firstStop(held, stops, searched) : null;
    const certain = met !== null ? met.at : isEnd ? held.length : held.length - possibleStart(held, stops);
    const text = held.slice(0, certain);
    held = met === null ? held.slice(certain) : "";
    return { text, stop: met?.stop ?? null };
  };
  return {
    push: (id, canStop = true) => append(decoder.push(id), canStop, false),
    end: (canStop = true) => append(decoder.end(), canStop, true),
  };
}

/** The stop text that ends first after the first `searched` characters; of two that end at one place, the longer. */
function firstStop(text: string, stops: readonly string[], searched: number): { at: number; stop: string } | null {
  let first: { at: number; end: number; stop: string } | null = null;
  for (const stop of stops) {
    const at = text.indexOf(stop, Math.max(0, searched + 1 - stop.length));
    const end = at + stop.length;
    if (at < 0 || (first !== null && (end > first.end || (end === first.end && at >= first.at)))) continue;
    first = { at, end, stop };
  }
  return first;
}

/** The length of the longest end of the text that is the beginning of a stop text. */
function possibleStart(text: string, stops: readonly string[]): number {
  let longest = 0;
  for (const stop of stops) {
    for (let length = Math.min(stop.length - 1, text.length); length > longest; length--) {
      if (stop.startsWith(text.slice(text.length - length))) longest = length;
    }
  }
  return longest;
}
