/**
 * tokenizer.json and the files beside it, converted to the form that `@huggingface/tokenizers` encodes exactly.
 *
 * Only this file knows where that library differs from the Rust `tokenizers`. Differences that can be avoided by other
 * settings are (`repairPreTokenizer`); the one that cannot is an error (`single_word`). Tokens that only
 * tokenizer_config.json names are added, as in transformers. tokenizer.json's post-processor adds BOS and EOS;
 * `add_bos_token` and `add_eos_token` have no effect, as in transformers.
 */
import { UserError } from "../util/errors.ts";
import type { DecoderJson } from "./detokenizer.ts";

export type AddedTokenJson = {
  readonly id: number;
  readonly content: string;
  readonly special: boolean;
  readonly single_word?: boolean;
  readonly lstrip?: boolean;
  readonly rstrip?: boolean;
  readonly normalized?: boolean;
};

/** A normalizer, pre-tokenizer or post-processor: the fields that are read here; others are passed on. */
type Part = {
  readonly type: string;
  readonly pretokenizers?: readonly Part[];
  readonly pattern?: { readonly String?: string; readonly Regex?: string };
  readonly behavior?: string;
  readonly invert?: boolean;
  readonly use_regex?: boolean;
  readonly add_prefix_space?: boolean;
  readonly prepend_scheme?: string;
};

type ModelJson = {
  readonly type?: string;
  readonly vocab: Readonly<Record<string, number>> | readonly (readonly [string, number])[];
  readonly unk_token?: string | null;
  readonly unk_id?: number | null;
  readonly byte_fallback?: boolean;
  readonly ignore_merges?: boolean;
  readonly end_of_word_suffix?: string | null;
  readonly continuing_subword_prefix?: string | null;
};

export type TokenizerJson = {
  readonly model: ModelJson;
  readonly added_tokens: readonly AddedTokenJson[];
  readonly normalizer: Part | null;
  readonly pre_tokenizer: Part | null;
  readonly post_processor: Part | null;
  readonly decoder: DecoderJson | null;
};

/** The settings of tokens in the other files of the folder. */
export type TokenSettings = {
  /** `bos_token`, `eos_token`, … by name. */
  readonly specialTokens: Readonly<Record<string, string>>;
  /** Further special tokens without a name. */
  readonly extraSpecialTokens: readonly string[];
  /** tokenizer_config.json's `added_tokens_decoder`. */
  readonly addedTokens: readonly AddedTokenJson[];
};

/** The tokenizer as transformers would use it, in the form that the library encodes exactly. */
export function prepareTokenizer(json: TokenizerJson, settings: TokenSettings, file: string): TokenizerJson {
  const added_tokens = mergeAddedTokens(json, settings);
  const word = added_tokens.find((token) => token.single_word);
  if (word !== undefined) {
    throw new UserError(
      `${file}: the added token ${JSON.stringify(word.content)} has \`single_word\`, which is not supported. ` +
        "Set it to false if the token may also be matched inside of words, or remove the token.",
    );
  }
  const prepared = { ...json, added_tokens };
  return { ...prepared, pre_tokenizer: repairPreTokenizer(prepared) };
}

/** The model's own vocabulary as a map from token to id. */
export function vocabularyOf(model: ModelJson): Map<string, number> {
  const { vocab } = model;
  return isPieceList(vocab) ? new Map(vocab.map(([piece], id) => [piece, id])) : new Map(Object.entries(vocab));
}

function isPieceList(vocab: ModelJson["vocab"]): vocab is readonly (readonly [string, number])[] {
  return Array.isArray(vocab);
}

function mergeAddedTokens(json: TokenizerJson, settings: TokenSettings): AddedTokenJson[] {
  const merged = new Map(json.added_tokens.map((token) => [token.content, token]));
  const vocabulary = vocabularyOf(json.model);
  const ids = [...vocabulary.values(), ...json.added_tokens.map((token) => token.id)];
  let next = ids.reduce((highest, id) => Math.max(highest, id), -1) + 1;
  const idOf = (content: string): number => merged.get(content)?.id ?? vocabulary.get(content) ?? next++;

  for (const token of settings.addedTokens) {
    if (!merged.has(token.content)) merged.set(token.content, { ...token, id: idOf(token.content) });
  }
  for (const content of [...Object.values(settings.specialTokens), ...settings.extraSpecialTokens]) {
    const known = merged.get(content) ?? { id: idOf(content), content, normalized: false };
    merged.set(content, { ...known, special: true });
  }
  return [...merged.values()];
}

function repairPreTokenizer(json: TokenizerJson): Part | null {
  const repaired = json.pre_tokenizer === null ? null : repairPart(json.pre_tokenizer);
  if (!splitsAtMetaspace(json)) return repaired;
  // Without a pre-tokenizer that splits, every text is one word of up to a megabyte. If no token spans the start of a
  // word, splitting there gives the same ids, in a fraction of the time.
  const words: Part = { type: "Split", pattern: { Regex: "▁+[^▁]*|[^▁]+" }, behavior: "Isolated", invert: false };
  return { type: "Sequence", pretokenizers: repaired === null ? [words] : [repaired, words] };
}

// GPT-2's own split, as in the Rust library. In a Split, `\s` does not match U+FEFF.
const gpt2Split: Part = {
  type: "Split",
  pattern: { Regex: String.raw`'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+` },
  behavior: "Isolated",
  invert: false,
};

function repairPart(part: Part): Part {
  if (part.type === "Sequence" && part.pretokenizers !== undefined) {
    return { ...part, pretokenizers: part.pretokenizers.map(repairPart) };
  }
  if (part.type === "ByteLevel" && part.use_regex !== false && part.add_prefix_space === false) {
    return { type: "Sequence", pretokenizers: [gpt2Split, { ...part, use_regex: false }] };
  }
  if (part.type === "Split") return repairSplit(part);
  // The older spelling of `prepend_scheme`.
  if (part.type === "Metaspace" && part.prepend_scheme === undefined && part.add_prefix_space === false) {
    return { ...part, prepend_scheme: "never" };
  }
  return part;
}

/** The library supports Removed and Isolated only; the other behaviours are written as patterns to isolate. */
function repairSplit(part: Part): Part {
  const { pattern, behavior, invert } = part;
  const cut = pattern?.Regex ?? (pattern?.String ?? "").replace(/[\\^$.*+?()[\]{}|/-]/g, "\\$&");
  const merged: Record<string, string> = {
    MergedWithPrevious: String.raw`[\s\S]*?(?:${cut})|[\s\S]+`,
    MergedWithNext: String.raw`(?:${cut})(?:(?!${cut})[\s\S])*|(?:(?!${cut})[\s\S])+`,
    Contiguous: `(?:${cut})+`,
  };
  const Regex = merged[behavior ?? ""];
  if (Regex !== undefined && !invert) return { ...part, pattern: { Regex }, behavior: "Isolated" };
  // Isolating what a pattern matches and isolating what it does not match split at the same places.
  return behavior === "Isolated" && invert ? { ...part, invert: false } : part;
}

/** Whether this is a SentencePiece-like BPE in which no token contains a space after another character. */
function splitsAtMetaspace({ model, pre_tokenizer }: TokenizerJson): boolean {
  const splits = pre_tokenizer !== null && pre_tokenizer.type !== "Metaspace" && pre_tokenizer.type !== "Split";
  if (model.type !== "BPE" || isPieceList(model.vocab) || splits) return false;
  if (model.ignore_merges || model.end_of_word_suffix || model.continuing_subword_prefix) return false;
  return "▁" in model.vocab && !Object.keys(model.vocab).some((token) => /[^▁]▁/u.test(token));
}
