/** What sampling from a model needs of its folder: the tokenizer, and the tokens that end a sample. */
import { stat } from "node:fs/promises";
import { join } from "node:path";
import type { AnyModelConfig } from "../models/config.ts";
import { loadTokenizer, type Tokenizer } from "../text/tokenizer.ts";
import { UserError } from "../util/errors.ts";

export type SamplingTokenizer = {
  /** Null if the folder has none: then only token ids can be sampled. */
  readonly tokenizer: Tokenizer | null;
  readonly eosIds: readonly number[];
};

/** Open the tokenizer of a folder. Throws a `UserError` for a model that is not a language model. */
export async function openSamplingTokenizer(
  folder: string,
  { head, raw }: Pick<AnyModelConfig, "head" | "raw">,
): Promise<SamplingTokenizer> {
  if (head !== "lm") throw new UserError(`The model cannot generate: it has a ${head} head.`);
  const hasTokenizer = await stat(join(folder, "tokenizer.json")).then(
    () => true,
    () => false,
  );
  const tokenizer = hasTokenizer ? await loadTokenizer(folder) : null;
  const ownEosIds = [raw.eos_token_id].flat().filter((id) => typeof id === "number");
  return { tokenizer, eosIds: tokenizer?.eosIds ?? ownEosIds };
}
