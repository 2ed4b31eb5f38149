/** The pairs of a reward-model run: read, encoded, checked and divided before the first step. */
import { createHash } from "node:crypto";
import type { RewardConfig } from "../../config/reward/schema.ts";
import { isUndecidable, type PreferencePair, preferenceEncoder } from "../../data/preference-rows.ts";
import { placeOf, type Row } from "../../data/row.ts";
import type { AnyModelConfig } from "../../models/config.ts";
import { loadTokenizer, type Tokenizer } from "../../text/tokenizer.ts";
import { UserError } from "../../util/errors.ts";
import { clearStatus, info, status } from "../../util/log.ts";
import { Random } from "../../util/random.ts";
import type { TrainContext } from "../context.ts";
import { fetchModel } from "../fetch-model.ts";
import { splitReader } from "../split-rows.ts";

export type Pairs = {
  readonly train: readonly PreferencePair[];
  readonly validation: readonly PreferencePair[];
  readonly tokenizerFolder: string;
  /** The padding token that the saved model's config.json is to name. */
  readonly padId: number | null;
  /** Equal for equal training pairs, in order. */
  readonly fingerprint: string;
};

type Start = { readonly folder: string; readonly model: AnyModelConfig };

/** Read and encode the pairs to learn from and those to validate on. */
export async function loadPairs(config: RewardConfig, start: Start, context: TrainContext): Promise<Pairs> {
  const { data, model, trainer } = config;
  const { tokenizer_path: path } = model;
  const tokenizer = await loadTokenizer(path === null ? start.folder : await fetchModel(path, context));
  const padId = paddingOf(start.model) ?? tokenizer.padId;
  const encode = encoderOf(config, tokenizer, { padId, vocabSize: start.model.vocabSize });
  const read = await splitReader(data, tokenizer);
  const load = async (split: "train" | "val", most: number) =>
    encodeRows(await read(split, most < 0 ? Number.POSITIVE_INFINITY : most), encode, context.signal);

  const all = await load("train", data.train_max_samples);
  const { kept: train, out } = holdOut(all, data.val_size, trainer.seed);
  const validation = data.val_size > 0 ? out : await load("val", data.val_max_samples);
  return { train, validation, tokenizerFolder: tokenizer.dir, padId, fingerprint: fingerprintOf(train) };
}

/** The padding token that a model's config.json names; null where it names none. */
export function paddingOf({ raw }: AnyModelConfig): number | null {
  const { pad_token_id: id } = raw;
  return typeof id === "number" && Number.isInteger(id) && id >= 0 ? id : null; // some files say -1 for none
}

function encoderOf(
  { data, model }: RewardConfig,
  tokenizer: Tokenizer,
  { padId, vocabSize }: { padId: number | null; vocabSize: number },
): (row: Row) => PreferencePair {
  const encode = preferenceEncoder(tokenizer, {
    chosenKey: data.chosen_key,
    rejectedKey: data.rejected_key,
    promptKey: data.prompt_key,
    marginKey: data.margin_key,
    maxLength: data.max_length,
    truncation: data.truncation,
    extra: data.apply_chat_template_kwargs,
    template: model.custom_chat_template,
    padId,
  });
  return (row) => {
    const pair = encode(row);
    for (const ids of [pair.chosen, pair.rejected]) {
      const unknown = ids.find((id) => id >= vocabSize);
      if (unknown === undefined) continue;
      throw new UserError(
        `${placeOf(row)}: the tokenizer in ${tokenizer.dir} gives the token ${unknown} ` +
          `(${JSON.stringify(tokenizer.pieceOf(unknown))}), and the model's \`vocab_size\` is ${vocabSize}. ` +
          "Use the tokenizer that belongs to the model (`model.tokenizer_path`).",
      );
    }
    return pair;
  };
}

const YIELD_EVERY = 64;

async function encodeRows(
  rows: readonly Row[],
  encode: (row: Row) => PreferencePair,
  signal: AbortSignal,
): Promise<PreferencePair[]> {
  const pairs: PreferencePair[] = [];
  let cut = 0;
  for (const [index, row] of rows.entries()) {
    if (index % YIELD_EVERY === 0) {
      signal.throwIfAborted();
      status(`encoding pairs · ${index}/${rows.length}`);
      await new Promise(setImmediate); // lets Ctrl-C through
    }
    const pair = encode(row);
    if (pair.isCut) cut++;
    if (!isUndecidable(pair)) pairs.push(pair);
  }
  clearStatus();
  if (cut > 0) info(`${cut} of ${rows.length} pairs were cut to \`data.max_length\`.`);
  const lost = rows.length - pairs.length;
  if (lost > 0)
    info(`${lost} of ${rows.length} pairs are left out: cut to \`data.max_length\`, their two sides are the same.`);
  return pairs;
}

/** Take `count` pairs out, drawn by the seed; both parts keep their order. */
function holdOut(
  pairs: readonly PreferencePair[],
  count: number,
  seed: number,
): { kept: PreferencePair[]; out: PreferencePair[] } {
  if (pairs.length <= count) {
    throw new UserError(
      pairs.length === 0
        ? "`data.train_files` gives no pair to learn from."
        : `\`data.val_size\` is ${count}, and \`data.train_files\` gives ${pairs.length} pairs, so none is left to learn ` +
            "from. Lower it, or add pairs.",
    );
  }
  const drawn = new Set(new Random(seed, "held out").permutation(pairs.length).subarray(0, count));
  const part = (isOut: boolean) => pairs.filter((_, index) => drawn.has(index) === isOut);
  return { kept: part(false), out: part(true) };
}

function fingerprintOf(pairs: readonly PreferencePair[]): string {
  const hash = createHash("sha256");
  for (const { chosen, rejected, margin } of pairs)
    hash.update(`${chosen.length}:${rejected.length}:${margin}:`).update(chosen).update(rejected);
  return hash.digest("hex");
}
