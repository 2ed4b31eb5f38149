/** The rows of a supervised run: fetched, encoded and checked before the first step, so that no bad row ends a run. */
import { createHash } from "node:crypto";
import { isNamed } from "../../config/hooks.ts";
import type { SftConfig } from "../../config/sft/schema.ts";
import { placeOf, type Row } from "../../data/row.ts";
import { multiTurnEncoder, type SftRow, singleTurnEncoder } from "../../data/sft-rows.ts";
import type { TokenRow } from "../../engine/contract.ts";
import { type AnyModelConfig, readAnyConfig } from "../../models/config.ts";
import { loadTokenizer, type Tokenizer } from "../../text/tokenizer.ts";
import { UserError } from "../../util/errors.ts";
import { clearStatus, info, status } from "../../util/log.ts";
import type { TrainContext } from "../context.ts";
import { fetchModel } from "../fetch-model.ts";
import { splitReader } from "../split-rows.ts";

export type Examples = {
  readonly train: readonly TokenRow[];
  readonly validation: readonly TokenRow[];
  readonly tokenizerFolder: string;
  /** Equal for equal training rows, in order. */
  readonly fingerprint: string;
};

/** Read and encode the training and validation rows. */
export async function loadExamples(config: SftConfig, folder: string, context: TrainContext): Promise<Examples> {
  const { tokenizer_path: tokenizerPath } = config.model;
  const tokenizer = await loadTokenizer(tokenizerPath === null ? folder : await fetchModel(tokenizerPath, context));
  const encode = withinVocabulary(encoderOf(config, tokenizer), tokenizer, await readAnyConfig(folder));
  const { data } = config;
  const read = await splitReader(data, tokenizer);
  const load = async (split: "train" | "val", most: number) =>
    encodeRows(await read(split, most < 0 ? Number.POSITIVE_INFINITY : most), encode, context.signal);
  const train = await load("train", data.train_max_samples);
  if (train.length === 0)
    throw new UserError(
      `\`data.${isNamed(data.custom_cls) ? "custom_cls" : "train_files"}\` gives no row to learn from.`,
    );
  const validation = await load("val", data.val_max_samples);
  return { train, validation, tokenizerFolder: tokenizer.dir, fingerprint: fingerprintOf(train) };
}

function fingerprintOf(rows: readonly TokenRow[]): string {
  const hash = createHash("sha256");
  for (const { ids, mask } of rows) hash.update(`${ids.length}:`).update(ids).update(Uint8Array.from(mask));
  return hash.digest("hex");
}

function encoderOf({ data, model }: SftConfig, tokenizer: Tokenizer): (row: Row) => SftRow {
  const { max_length: maxLength, truncation } = data;
  const template = { extra: data.apply_chat_template_kwargs, template: model.custom_chat_template };
  if (data.multiturn.enable) {
    const { messages_key: messagesKey, tools_key: toolsKey, enable_thinking_key: enableThinkingKey } = data;
    const keys = { messagesKey, toolsKey, enableThinkingKey, ignoreInputIdsMismatch: data.ignore_input_ids_mismatch };
    return multiTurnEncoder(tokenizer, { ...template, ...keys, maxLength, truncation });
  }
  const { prompt_key: promptKey, response_key: responseKey } = data;
  const { prompt_dict_keys: promptDictKeys, response_dict_keys: responseDictKeys } = data;
  const keys = { promptKey, responseKey, promptDictKeys, responseDictKeys };
  return singleTurnEncoder(tokenizer, { ...template, ...keys, maxLength, truncation });
}

/** Refuses a token that the model has no embedding for: the tokenizer belongs to another model. */
function withinVocabulary(
  encode: (row: Row) => SftRow,
  { dir, pieceOf }: Tokenizer,
  { vocabSize }: AnyModelConfig,
): (row: Row) => SftRow {
  return (row) => {
    const encoded = encode(row);
    const unknown = encoded.ids.find((id) => id >= vocabSize);
    if (unknown === undefined) return encoded;
    throw new UserError(
      `${placeOf(row)}: the tokenizer in ${dir} gives the token ${unknown} (${JSON.stringify(pieceOf(unknown))}), and the ` +
        `model's \`vocab_size\` is ${vocabSize}. Use the tokenizer that belongs to the model (\`model.tokenizer_path\`).`,
    );
  };
}

const YIELD_EVERY = 64;

async function encodeRows(
  rows: readonly Row[],
  encode: (row: Row) => SftRow,
  signal: AbortSignal,
): Promise<TokenRow[]> {
  const encoded: TokenRow[] = [];
  let cut = 0;
  let unmarked = 0;
  for (const [index, row] of rows.entries()) {
    if (index % YIELD_EVERY === 0) {
      signal.throwIfAborted();
      status(`encoding rows · ${index}/${rows.length}`);
      await new Promise(setImmediate); // lets Ctrl-C through
    }
    const { ids, lossMask, cut: removed } = encode(row);
    if (removed > 0) cut++;
    if (!lossMask.includes(1)) unmarked++;
    encoded.push({ ids, mask: lossMask });
  }
  clearStatus();
  if (cut > 0) info(`${cut} of ${rows.length} rows were cut to \`data.max_length\`.`);
  if (unmarked > 0)
    info(`${unmarked} of ${rows.length} rows have no token to learn (nothing of the response is left).`);
  return encoded;
}
