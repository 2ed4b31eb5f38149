/**
 * Text of a sample as it grows, and the stop texts that end it. What could still become part of a stop text is held
 * back, so that text once given out is never taken back.
 *
 * The stop text that is complete first ends the sample, so that it does not matter how the text is cut into tokens.
 */
import { type Decodable, streamDecoder } from "../text/stream.ts";

export type Heard = {
  /** Text that is certain now. */
  readonly text: string;
  /** The stop text that was met; the sample's text ends before it. */
  readonly stop: string | null;
};

export type TextStream = {
  /** One token more. A stop text that it completes is text like any other unless it `canStop`. */
  push(id: number, canStop?: boolean): Heard;
  /** What was held back, once nothing follows. */
  end(canStop?: boolean): Heard;
};

/** Listen to a sample's tokens. */
export function textStream(tokenizer: Decodable, stops: readonly string[] = []): TextStream {
  const decoder = streamDecoder(tokenizer, { skipSpecialTokens: true });
  let held = "";
  const hear = (more: string, canStop: boolean, isEnd: boolean): Heard => {
    const heard = held.length;
    held += more;
    const met = canStop ? firstStop(held, stops, heard) : null;
    const certain = met !== null ? met.at : isEnd ? held.length : held.length - possibleStart(held, stops);
    const text = held.slice(0, certain);
    held = met === null ? held.slice(certain) : "";
    return { text, stop: met?.stop ?? null };
  };
  return {
    push: (id, canStop = true) => hear(decoder.push(id), canStop, false),
    end: (canStop = true) => hear(decoder.end(), canStop, true),
  };
}

/** The stop text that ends first behind the first `heard` characters; of two that end at one place, the longer. */
function firstStop(text: string, stops: readonly string[], heard: number): { at: number; stop: string } | null {
  let first: { at: number; end: number; stop: string } | null = null;
  for (const stop of stops) {
    const at = text.indexOf(stop, Math.max(0, heard + 1 - stop.length));
    const end = at + stop.length;
    if (at < 0 || (first !== null && (end > first.end || (end === first.end && at >= first.at)))) continue;
    first = { at, end, stop };
  }
  return first;
}

/** The length of the longest end of the text that a stop text begins with. */
function possibleStart(text: string, stops: readonly string[]): number {
  let longest = 0;
  for (const stop of stops) {
    for (let length = Math.min(stop.length - 1, text.length); length > longest; length--) {
      if (stop.startsWith(text.slice(text.length - length))) longest = length;
    }
  }
  return longest;
}
