/**
 * The tokens of a vocabulary as bytes, sorted, so that all tokens that may follow a state are found in one walk: what
 * a token shares with the one before it is not matched again.
 */
import { UserError } from "../../util/errors.ts";
import type { Tokenizer } from "../tokenizer.ts";
import { closeTag, openTag } from "../tool-calls.ts";
import type { Automaton, State } from "./automaton.ts";

export type TokenTable = {
  /** The size of the model's vocabulary, padding rows included. */
  readonly vocabSize: number;
  /** By token id; null for special tokens and for ids without text. */
  readonly bytesOf: readonly (Uint8Array | null)[];
  /** The ids of tokens with text, in the order of their bytes. */
  readonly sorted: Int32Array;
  /** How many bytes each of them shares with the one before. */
  readonly shared: Int32Array;
  /** Their bytes, one after the other, and where the bytes of each end. */
  readonly bytes: Uint8Array;
  readonly ends: Int32Array;
};

/** Which tokens may follow: one bit per token id. */
export type TokenSet = { readonly bits: Uint32Array; readonly count: number };

export const hasToken = ({ bits }: TokenSet, id: number): boolean => ((bits[id >>> 5]! >>> (id & 31)) & 1) === 1;

const tables = new WeakMap<Tokenizer, TokenTable>();

/** The table of a tokenizer; it is made once. */
export function tokenTable(tokenizer: Tokenizer, vocabSize: number): TokenTable {
  const known = tables.get(tokenizer);
  if (known?.vocabSize === vocabSize) return known;
  const made = makeTable(tokenizer, vocabSize);
  tables.set(tokenizer, made);
  return made;
}

function makeTable(tokenizer: Tokenizer, vocabSize: number): TokenTable {
  const isText = (id: number) => !tokenizer.isSpecial(id) || [openTag, closeTag].includes(tokenizer.pieceOf(id) ?? "");
  const every = Array.from({ length: vocabSize }, (_, id) => (isText(id) ? tokenizer.tokenBytes(id) : null));
  const single = new Set(every.map((bytes) => (bytes?.length === 1 ? bytes[0] : undefined)));
  const hasEveryByte = Array.from({ length: 64 }, (_, i) => 0x80 + i).every((byte) => single.has(byte));
  const isUsable = (bytes: Uint8Array | null): bytes is Uint8Array =>
    bytes !== null && bytes.length > 0 && (hasEveryByte || isWholeText(bytes)); // else no token may complete a character
  const bytesOf = every.map((bytes) => (isUsable(bytes) ? bytes : null));
  const ids = bytesOf.flatMap((bytes, id) => (bytes === null ? [] : [id]));
  if (ids.length === 0) {
    throw new UserError(
      "The text of single tokens is not known for this model's tokenizer, so its output cannot be constrained. " +
        "Structured output works with byte-level BPE and SentencePiece tokenizers.",
    );
  }
  const sorted = Int32Array.from(ids.sort((a, b) => Buffer.compare(bytesOf[a]!, bytesOf[b]!) || a - b));
  const shared = sorted.map((id, i) => (i === 0 ? 0 : sharedLength(bytesOf[sorted[i - 1]!]!, bytesOf[id]!)));
  let end = 0;
  const ends = sorted.map((id) => {
    end += bytesOf[id]!.length;
    return end;
  });
  const bytes = new Uint8Array(end);
  for (const [i, id] of sorted.entries()) bytes.set(bytesOf[id]!, ends[i]! - bytesOf[id]!.length);
  return { vocabSize, bytesOf, sorted, shared, bytes, ends };
}

function isWholeText(bytes: Uint8Array): boolean {
  try {
    new TextDecoder("utf-8", { fatal: true }).decode(bytes);
    return true;
  } catch {
    return false;
  }
}

function sharedLength(a: Uint8Array, b: Uint8Array): number {
  let length = 0;
  while (length < a.length && length < b.length && a[length] === b[length]) length++;
  return length;
}

/** All tokens whose bytes may follow a state. */
export function tokensAfter(automaton: Automaton, state: State, table: TokenTable): TokenSet {
  const { sorted, shared, bytes, ends, vocabSize } = table;
  const bits = new Uint32Array(Math.ceil(vocabSize / 32));
  const states: State[] = [state]; // after each byte of the current token
  let count = 0;
  let refused = Number.POSITIVE_INFINITY; // the place of the byte at which the last token was refused
  for (let i = 0; i < sorted.length; i++) {
    if (shared[i]! > refused) continue; // it begins with the same refused bytes
    refused = Number.POSITIVE_INFINITY;
    const start = i === 0 ? 0 : ends[i - 1]!;
    const length = ends[i]! - start;
    for (let at = shared[i]!; at < length; at++) {
      const known = states[at]!;
      const next = known.next[bytes[start + at]!] ?? automaton.after(known, bytes[start + at]!);
      if (next === null) {
        refused = at;
        break;
      }
      states[at + 1] = next;
    }
    if (refused !== Number.POSITIVE_INFINITY) continue;
    const id = sorted[i]!;
    bits[id >>> 5]! |= 1 << (id & 31);
    count++;
  }
  return { bits, count };
}
