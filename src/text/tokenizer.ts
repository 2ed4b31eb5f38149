/**
 * A tokenizer from a Hugging Face folder: tokenizer.json with tokenizer_config.json, special_tokens_map.json,
 * generation_config.json and the chat template beside it.
 *
 * The law: ids and text equal those of Hugging Face's Python libraries. `@huggingface/tokenizers` encodes, with the
 * repairs of `tokenizer-json.ts`; `detokenizer.ts` decodes, with the same code for whole texts and token by token.
 */
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { Tokenizer as Library } from "@huggingface/tokenizers";
import { codeOf, messageOf, UserError } from "../util/errors.ts";
import { decoderChain, pieceBytes, type Stage } from "./detokenizer.ts";
import { type Decodable, type DecodeOptions, streamDecoder } from "./stream.ts";
import {
  type AddedTokenJson,
  prepareTokenizer,
  type TokenizerJson,
  type TokenSettings,
  vocabularyOf,
} from "./tokenizer-json.ts";

export type EncodeOptions = {
  /** Add BOS, EOS, … where the model expects them; true by default, as in transformers. */
  readonly addSpecialTokens?: boolean;
};

/** The special tokens by the names that chat templates use (`bos_token`, `eos_token`, `pad_token`, …). */
export type SpecialTokens = Readonly<Record<string, string>>;

export type Tokenizer = Decodable & {
  /** The folder it was read from; messages name it. */
  readonly dir: string;
  /** The number of tokens, added ones included, as `len(tokenizer)` in transformers. */
  readonly vocabSize: number;
  readonly bosId: number | null;
  readonly eosId: number | null;
  /** The padding token; EOS if there is none. */
  readonly padId: number | null;
  /** Every token that ends a response: `eos_token` first, then generation_config.json's. */
  readonly eosIds: readonly number[];
  encode(text: string, options?: EncodeOptions): Int32Array;
  decode(ids: ArrayLike<number>, options?: DecodeOptions): string;
  /** The text of a token in the middle of a text; U+FFFD if it is part of a character. */
  tokenText(id: number): string;
  /** The bytes of a token in the middle of a text; null if it has none of its own. */
  tokenBytes(id: number): Uint8Array | null;
  readonly chatTemplate: string | null;
  /** The template for tools, if the folder has a separate one. */
  readonly toolTemplate: string | null;
  readonly specialTokens: SpecialTokens;
};

/** Read the tokenizer of a model folder. */
export async function loadTokenizer(dir: string): Promise<Tokenizer> {
  const file = join(dir, "tokenizer.json");
  const source = await readJson(file);
  if (source === null) {
    throw new UserError(
      `${dir} has no tokenizer.json. transformers can convert a folder that has only tokenizer.model or vocab files: ` +
        "AutoTokenizer.from_pretrained(folder).save_pretrained(folder).",
    );
  }
  const config = (await readJson(join(dir, "tokenizer_config.json"))) ?? {};
  const map = (await readJson(join(dir, "special_tokens_map.json"))) ?? {};
  const generation = (await readJson(join(dir, "generation_config.json"))) ?? {};
  const settings = readSettings(config, map);
  const json = prepareTokenizer(checkShape(source, file), settings, file);
  return assemble({
    dir,
    json,
    settings,
    generation,
    library: openLibrary(json, file),
    templates: await readTemplates(dir, config),
  });
}

type Json = Readonly<Record<string, unknown>>;

/** The result of the library's `encode`, which its own types leave open. */
type Encoding = { readonly ids: readonly number[]; readonly tokens: readonly string[] };

type Sources = {
  readonly dir: string;
  readonly json: TokenizerJson;
  readonly settings: TokenSettings;
  readonly generation: Json;
  readonly library: Library;
  readonly templates: Templates;
};

function assemble({ dir, json, settings, generation, library, templates }: Sources): Tokenizer {
  const pieces: string[] = [];
  const idOf = vocabularyOf(json.model);
  for (const token of json.added_tokens) idOf.set(token.content, token.id);
  for (const [piece, id] of idOf) pieces[id] = piece;
  // An added token takes precedence over a piece of the vocabulary with the same id.
  for (const token of json.added_tokens) pieces[token.id] = token.content;
  const special = new Set(json.added_tokens.filter((token) => token.special).map((token) => token.id));
  const named = (name: string): number | null => idOf.get(settings.specialTokens[name] ?? "") ?? null;
  const eosId = named("eos_token");
  const eosIds = [eosId, generation.eos_token_id].flat().filter((id) => typeof id === "number");
  const chain = decoderChain(json.decoder) ?? wholeDecoder(library);
  const bytesOfPiece = pieceBytes(json.decoder);
  const unknownBytes = byteFallbackOf(json, idOf);

  const tokenizer: Tokenizer = {
    dir,
    vocabSize: idOf.size,
    bosId: named("bos_token"),
    eosId,
    padId: named("pad_token") ?? eosId,
    eosIds: [...new Set(eosIds)],
    ...templates,
    specialTokens: settings.specialTokens,
    pieceOf: (id) => pieces[id] ?? null,
    isSpecial: (id) => special.has(id),
    openDecoder: () => chain(true),
    encode(text, { addSpecialTokens = true } = {}) {
      // A lone surrogate has no UTF-8 form; it becomes U+FFFD, as usual.
      const { ids, tokens }: Encoding = library.encode(text.toWellFormed(), { add_special_tokens: addSpecialTokens });
      checkKnown(ids, tokens, dir);
      return Int32Array.from(unknownBytes === null ? ids : ids.flatMap((id, i) => unknownBytes(id, tokens[i]!)));
    },
    decode(ids, options) {
      const stream = streamDecoder(tokenizer, options);
      let text = "";
      for (let i = 0; i < ids.length; i++) text += stream.push(ids[i]!);
      return text + stream.end();
    },
    tokenText(id) {
      const piece = pieces[id];
      if (piece === undefined) return "";
      const stage = chain(false);
      return [...stage(piece), ...stage(null)].join("");
    },
    tokenBytes(id) {
      const piece = pieces[id];
      return piece === undefined || bytesOfPiece === null ? null : bytesOfPiece(piece);
    },
  };
  return tokenizer;
}

/** A decoder that works on whole texts only (WordPiece, CTC): everything is held back until the end. */
function wholeDecoder(library: Library): () => Stage {
  return () => {
    const pieces: string[] = [];
    return (piece) => {
      if (piece === null) return library.decoder === null ? pieces : library.decoder.decode_chain(pieces);
      pieces.push(piece);
      return [];
    };
  };
}

/** A Unigram model with byte fallback encodes an unknown piece as its bytes; the library returns the unknown token. */
function byteFallbackOf(
  { model }: TokenizerJson,
  idOf: ReadonlyMap<string, number>,
): ((id: number, piece: string) => number | number[]) | null {
  if (model.type !== "Unigram" || !model.byte_fallback) return null;
  const byteIds = Array.from({ length: 256 }, (_, byte) =>
    idOf.get(`<0x${byte.toString(16).toUpperCase().padStart(2, "0")}>`),
  );
  return (id, piece) => {
    if (id !== model.unk_id || idOf.get(piece) === id) return id;
    const bytes = [...new TextEncoder().encode(piece)].map((byte) => byteIds[byte]);
    return bytes.every((known) => known !== undefined) ? bytes : id;
  };
}

function checkKnown(ids: readonly (number | undefined)[], tokens: readonly string[], dir: string): void {
  const unknown = ids.indexOf(undefined);
  if (unknown < 0) return;
  throw new UserError(
    `The tokenizer of ${dir} has no token for ${JSON.stringify(tokens[unknown])} and no \`unk_token\`. ` +
      "Remove such characters from the text, or use a model whose vocabulary has them.",
  );
}

function openLibrary(json: TokenizerJson, file: string): Library {
  try {
    return new Library(json, { unk_token: json.model.unk_token, clean_up_tokenization_spaces: false });
  } catch (error) {
    throw new UserError(
      `${file} uses a feature that the tokenizer library does not support: ${messageOf(error)}. ` +
        "Save it again with a current version of transformers, or use a model with a BPE or Unigram tokenizer.",
      { cause: error },
    );
  }
}

/** From tokenizer_config.json; tokens that it does not name from special_tokens_map.json. */
function readSettings(config: Json, map: Json): TokenSettings {
  // The order in which transformers gives ids to tokens that have none.
  const names = ["bos", "eos", "unk", "sep", "pad", "cls", "mask"].map((kind) => `${kind}_token`);
  const specialTokens: Record<string, string> = {};
  for (const name of names) {
    const content = contentOf(name in config ? config[name] : map[name]);
    if (content !== null) specialTokens[name] = content;
  }
  const extra = [config.additional_special_tokens ?? map.additional_special_tokens, config.extra_special_tokens];
  return {
    specialTokens,
    extraSpecialTokens: extra.flatMap(contentsOf),
    addedTokens: readAddedTokens(config.added_tokens_decoder),
  };
}

/** A token is written as its text or as an object with `content`. */
function contentOf(value: unknown): string | null {
  if (typeof value === "string") return value;
  return isJson(value) && typeof value.content === "string" ? value.content : null;
}

function contentsOf(value: unknown): string[] {
  const values = Array.isArray(value) ? value : isJson(value) ? Object.values(value) : [];
  return values.map(contentOf).filter((content) => content !== null);
}

function readAddedTokens(value: unknown): AddedTokenJson[] {
  if (!isJson(value)) return [];
  return Object.entries(value).flatMap(([id, token]) =>
    isJson(token) && typeof token.content === "string"
      ? [{ ...token, id: Number(id), content: token.content, special: token.special === true }]
      : [],
  );
}

/** Whether the model of a folder can hold a conversation. */
export async function hasChatTemplate(dir: string): Promise<boolean> {
  const config = (await readJson(join(dir, "tokenizer_config.json"))) ?? {};
  return (await readTemplates(dir, config)).chatTemplate !== null;
}

type Templates = Pick<Tokenizer, "chatTemplate" | "toolTemplate">;

/** chat_template.jinja or chat_template.json, or tokenizer_config.json's own text or list of named texts. */
async function readTemplates(dir: string, config: Json): Promise<Templates> {
  const file = await readText(join(dir, "chat_template.jinja"));
  if (file !== null) return { chatTemplate: file, toolTemplate: null };
  const own = (await readJson(join(dir, "chat_template.json")))?.chat_template ?? config.chat_template;
  if (typeof own === "string") return { chatTemplate: own, toolTemplate: null };
  const entries = (Array.isArray(own) ? own : []).filter(isJson);
  const named = new Map(entries.map((entry) => [entry.name, entry.template]));
  const pick = (name: string) => {
    const template = named.get(name);
    return typeof template === "string" ? template : null;
  };
  return { chatTemplate: pick("default") ?? pick("tool_use"), toolTemplate: pick("tool_use") };
}

function isJson(value: unknown): value is Json {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

async function readText(file: string): Promise<string | null> {
  try {
    return await readFile(file, "utf8");
  } catch (error) {
    if (codeOf(error) === "ENOENT" || codeOf(error) === "ENOTDIR") return null;
    throw new UserError(`${file} cannot be read: ${messageOf(error)}.`, { cause: error });
  }
}

async function readJson(file: string): Promise<Json | null> {
  const text = await readText(file);
  if (text === null) return null;
  try {
    const value: unknown = JSON.parse(text);
    if (isJson(value)) return value;
  } catch (error) {
    throw new UserError(`${file} is not JSON: ${messageOf(error)}. Download the file again.`, { cause: error });
  }
  throw new UserError(`${file} is not a JSON object. Download the file again.`);
}

/** Checks the parts that are read here; the library checks the rest when it builds them. */
function checkShape(source: Json, file: string): TokenizerJson {
  const { model } = source;
  if (!isJson(model) || typeof model.vocab !== "object" || model.vocab === null) {
    throw new UserError(`${file} has no \`model.vocab\`. It is not a tokenizer of Hugging Face's tokenizers library.`);
  }
  const parts = { normalizer: null, pre_tokenizer: null, post_processor: null, decoder: null };
  return { ...parts, added_tokens: [], ...source } as unknown as TokenizerJson;
}
