/**
 * Text from token ids as they come: nothing is given out that a later token could still change, so a character never
 * arrives in halves. The law: all pushes and the end, joined, are `decode` of all ids. Each token is looked at once.
 */
import type { Stage } from "./detokenizer.ts";

/** What decoding needs of a tokenizer. */
export type Decodable = {
  /** The vocabulary's own spelling of a token (`Ġworld`, `▁world`, `<0xE4>`); `null` for an id it does not have. */
  pieceOf(id: number): string | null;
  /** Whether `skipSpecialTokens` drops this id. */
  isSpecial(id: number): boolean;
  /** A fresh chain of decoder stages. */
  openDecoder(): Stage;
};

export type DecodeOptions = { readonly skipSpecialTokens?: boolean };

export type StreamDecoder = {
  /** The text that this token makes final; often its own, sometimes none, sometimes that of tokens before it. */
  push(id: number): string;
  /** What was held back. */
  end(): string;
};

/** Decode token by token. */
export function streamDecoder(tokenizer: Decodable, options: DecodeOptions = {}): StreamDecoder {
  const { skipSpecialTokens = false } = options;
  const stage = tokenizer.openDecoder();
  return {
    push(id) {
      const piece = tokenizer.pieceOf(id);
      // Ids without a token (the padding rows of an embedding) decode to nothing, as in the reference library.
      if (piece === null || (skipSpecialTokens && tokenizer.isSpecial(id))) return "";
      return stage(piece).join("");
    },
    end: () => stage(null).join(""),
  };
}

/** How many characters at the end of `text` could be the beginning of `mark`, without being all of it. */
export function overlap(text: string, mark: string): number {
  let length = Math.min(text.length, mark.length - 1);
  while (length > 0 && !text.endsWith(mark.slice(0, length))) length--;
  return length;
}
