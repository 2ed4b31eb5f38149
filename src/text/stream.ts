/**
 * Text from token ids as they come. Text that a later token could still change is held back, so a character is never
 * split. The law: all pushes and the end, joined, equal `decode` of all ids. Each token is read once.
 */
import type { Stage } from "./detokenizer.ts";

/** What decoding needs from a tokenizer. */
export type Decodable = {
  /** A token as the vocabulary writes it (`Ġworld`, `▁world`, `<0xE4>`); `null` for an unknown id. */
  pieceOf(id: number): string | null;
  /** Whether `skipSpecialTokens` drops this id. */
  isSpecial(id: number): boolean;
  /** A new chain of decoder stages. */
  openDecoder(): Stage;
};

export type DecodeOptions = { readonly skipSpecialTokens?: boolean };

export type StreamDecoder = {
  /** The text that is final with this token: often its own, sometimes none, sometimes that of earlier tokens. */
  push(id: number): string;
  /** The text that was held back. */
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
