/**
 * A tokenizer for checks without a model: every character is a token, and the chat template only names the roles.
 *
 * With it the readers of rows run to their end, so that they find what is wrong with columns and messages. Lengths and
 * what a real template would refuse are unknown.
 */
import type { Tokenizer } from "../text/tokenizer.ts";

const endId = 0;
const letter = (id: number): string => (id === endId ? "" : String.fromCodePoint(id));

export const standInTokenizer: Tokenizer = {
  dir: "no model",
  vocabSize: 0x110000,
  bosId: null,
  eosId: endId,
  padId: null,
  eosIds: [endId],
  encode: (text) => Int32Array.from(text, (character) => character.codePointAt(0) ?? endId),
  decode: (ids) => Array.from(ids, letter).join(""),
  tokenText: letter,
  tokenBytes: (id) => new TextEncoder().encode(letter(id)),
  pieceOf: letter,
  isSpecial: (id) => id === endId,
  openDecoder: () => (piece) => (piece === null ? [] : [piece]),
  chatTemplate:
    "{% for message in messages %}<{{ message.role }}>{{ message.content }}</>{% endfor %}" +
    "{% if add_generation_prompt %}<assistant>{% endif %}",
  toolTemplate: null,
  specialTokens: {},
};
