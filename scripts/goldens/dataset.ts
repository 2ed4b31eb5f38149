/**
 * Golden cases of topic `dataset`: templated ids, prompt filtering, collation, episode padding, SFT rows and masks.
 *
 * Two conversions stand between verl's numbers and ours. Its single-turn SFT mask marks the position that predicts, ours
 * the token that is predicted. And when it cuts such a row on the left it still counts the prompt from the uncut start,
 * so that nothing is learnt; ours keeps the mask of the tokens that are left. `pad_mode=no_padding` always cuts on the
 * right in verl, with any `truncation`.
 */
import { z } from "zod";
import { chooseSamples, filterOverlong, rlRow } from "../../src/data/rl-rows.ts";
import type { Row } from "../../src/data/row.ts";
import { multiTurnEncoder, type SftRow, singleTurnEncoder } from "../../src/data/sft-rows.ts";
import { type Truncation, truncate } from "../../src/data/truncate.ts";
import { encodeChat, renderChat, systemAndGenerationPrompt } from "../../src/text/chat-template.ts";
import { loadTokenizer, type Tokenizer } from "../../src/text/tokenizer.ts";
import { padEpisode, padRows, positionIds } from "./padding.ts";
import { compare, type GoldenCase } from "./postprocess.ts";

type Outputs = Record<string, unknown>;
type Compute = (inputs: unknown, tokenizer: Tokenizer) => Outputs;

const Ids = z.array(z.number());
const Prompts = z.object({ prompts: z.array(z.array(z.looseObject({ role: z.string(), content: z.string() }))) });
const RowValues = z.record(z.string(), z.unknown());
const DUMMY_TENSOR = [0]; // verl adds it so that a batch is never without a tensor; there is nothing to compute

const checks: readonly (readonly [prefix: string, compute: Compute])[] = [
  ["chat_template/prompts", templatedPrompts],
  [
    "chat_template/system_and_generation_prompt",
    (_inputs, tokenizer) => {
      const { systemPrompt, generationPrompt } = systemAndGenerationPrompt(tokenizer);
      return { system_prompt: [...systemPrompt], generation_prompt: [...generationPrompt] };
    },
  ],
  ["rlhf_filter/", filtered],
  ["rlhf/max_samples", firstSamples],
  [
    "rlhf/getitem",
    (inputs) => ({ ...verlRow(z.object({ row: RowValues }).parse(inputs).row), dummy_tensor: DUMMY_TENSOR }),
  ],
  [
    "rlhf/collate",
    (inputs) => {
      const rows = z
        .object({ rows: z.array(RowValues) })
        .parse(inputs)
        .rows.map(verlRow);
      return { ...collated(rows), dummy_tensor: rows.map(() => DUMMY_TENSOR) };
    },
  ],
  ["agent_loop_pad/", paddedEpisode],
  ["multiturn_sft/", multiTurn],
  ["sft/", singleTurn],
];

const tokenizers = new Map<string, Promise<Tokenizer>>();

/** What differs from the golden outputs; empty when nothing does. The cases need minimind2-small's tokenizer. */
export async function checkDataset(golden: GoldenCase, tokenizerDir: string): Promise<string[]> {
  const compute = checks.find(([prefix]) => golden.name.startsWith(prefix))?.[1];
  if (compute === undefined) return [`${golden.name}: no check for this case`];
  const opening = tokenizers.get(tokenizerDir) ?? loadTokenizer(tokenizerDir);
  tokenizers.set(tokenizerDir, opening);
  const tokenizer = await opening;
  return compare(golden, () => compute(golden.inputs, tokenizer));
}

const rowOf = (values: Readonly<Record<string, unknown>>): Row => ({ values, file: "golden.jsonl", row: 1 });

/** A row as a run reads it, by verl's names: all its columns, and what verl's dataset adds to them. */
function verlRow(values: Readonly<Record<string, unknown>>): Record<string, unknown> {
  const { source, prompt, index, toolsKwargs, interactionKwargs } = rlRow(rowOf(values));
  const added = { raw_prompt: prompt, index, tools_kwargs: toolsKwargs, interaction_kwargs: interactionKwargs };
  return { ...source.values, ...added };
}

/** Rows to columns; a column that a row does not have is null there. */
function collated(rows: readonly Readonly<Record<string, unknown>>[]): Record<string, unknown[]> {
  const names = new Set(rows.flatMap((row) => Object.keys(row)));
  return Object.fromEntries([...names].map((name) => [name, rows.map((row) => row[name] ?? null)]));
}

function templatedPrompts(inputs: unknown, tokenizer: Tokenizer): Outputs {
  const { prompts } = Prompts.parse(inputs);
  const ids = prompts.map((prompt) => [...encodeChat(tokenizer, prompt, { addGenerationPrompt: true })]);
  return {
    input_ids: ids,
    lengths: ids.map((row) => row.length),
    text: prompts.map((prompt) => renderChat(tokenizer, prompt, { addGenerationPrompt: true })),
  };
}

function filtered(inputs: unknown, tokenizer: Tokenizer): Outputs {
  const Inputs = Prompts.extend({ max_prompt_length: z.number(), filter_overlong_prompts: z.boolean() });
  const { prompts, max_prompt_length: maxPromptLength, filter_overlong_prompts } = Inputs.parse(inputs);
  const rows = prompts.map((prompt, index) => rlRow(rowOf({ prompt, extra_info: { index } })));
  const kept = filter_overlong_prompts
    ? filterOverlong(rows, tokenizer, { maxPromptLength }).prompts.map(({ row }) => row)
    : rows;
  return { kept_indices: kept.map((row) => row.index) };
}

function firstSamples(inputs: unknown): Outputs {
  const { num_rows, max_samples } = z.object({ num_rows: z.number(), max_samples: z.number() }).parse(inputs);
  return { kept_indices: chooseSamples(num_rows, { maxSamples: max_samples, shuffle: false, seed: 0 }) };
}

function paddedEpisode(inputs: unknown): Outputs {
  const Inputs = z.object({
    prompt_length: z.number(),
    response_length: z.number(),
    prompt_ids: Ids,
    response_ids: Ids,
    response_mask: Ids,
    response_logprobs: Ids.nullable(),
    pad_token_id: z.number(),
  });
  const golden = Inputs.parse(inputs);
  const padded = padEpisode(
    {
      promptIds: golden.prompt_ids,
      responseIds: golden.response_ids,
      responseMask: golden.response_mask,
      responseLogprobs: golden.response_logprobs,
    },
    { promptLength: golden.prompt_length, responseLength: golden.response_length, padId: golden.pad_token_id },
  );
  return {
    prompts: [[...padded.prompt]],
    responses: [[...padded.response]],
    input_ids: [[...padded.ids]],
    attention_mask: [[...padded.attentionMask]],
    position_ids: [[...padded.positionIds]],
    response_mask: [[...padded.responseMask]],
    ...(padded.responseLogprobs === null ? {} : { response_logprobs: [[...padded.responseLogprobs]] }),
  };
}

const Limits = z.object({ max_length: z.number(), truncation: z.enum(["error", "left", "right"]).default("error") });

function multiTurn(inputs: unknown, tokenizer: Tokenizer): Outputs {
  const Inputs = Limits.extend({ messages: z.unknown(), pad_mode: z.enum(["right", "no_padding"]) });
  const { messages, pad_mode, max_length: maxLength, truncation: asked } = Inputs.parse(inputs);
  const truncation = pad_mode === "no_padding" ? "right" : asked;
  const row = multiTurnEncoder(tokenizer, { maxLength, truncation })(rowOf({ messages }));
  const positions = cutPositions(row, maxLength, truncation);
  if (pad_mode === "no_padding")
    return { input_ids: [...row.ids], position_ids: [...positions], loss_mask: [...row.lossMask] };
  return {
    ...padded(row, maxLength, tokenizer),
    position_ids: [...padRows([positions], { padId: 0, length: maxLength }).ids],
    loss_mask: [...padRows([row.lossMask], { padId: 0, length: maxLength }).ids],
  };
}

/** verl numbers the positions of a conversation before it cuts it. */
function cutPositions(row: SftRow, maxLength: number, truncation: Truncation): Int32Array {
  return truncate(
    Int32Array.from({ length: row.ids.length + row.cut }, (_, i) => i),
    maxLength,
    truncation,
  );
}

function singleTurn(inputs: unknown, tokenizer: Tokenizer): Outputs {
  const Inputs = Limits.extend({ prompt: z.unknown(), response: z.unknown() });
  const { prompt, response, max_length: maxLength, truncation } = Inputs.parse(inputs);
  const keys = { promptKey: "prompt", responseKey: "response", truncation };
  const source = rowOf({ prompt, response });
  const row = singleTurnEncoder(tokenizer, { ...keys, maxLength })(source);
  const uncut = singleTurnEncoder(tokenizer, { ...keys, maxLength: Number.MAX_SAFE_INTEGER })(source);
  const rows = padded(row, maxLength, tokenizer);
  const isCutLeft = row.cut > 0 && truncation === "left";
  const mask = isCutLeft ? countedFromUncutStart(row, uncut) : predicting(row.lossMask);
  return {
    ...rows,
    position_ids: [...positionIds(rows.attention_mask)],
    loss_mask: [...padRows([mask], { padId: 0, length: maxLength }).ids],
  };
}

/** The mask verl makes for a row cut on the left: prompt and response lengths are those before the cut. */
function countedFromUncutStart(row: SftRow, uncut: SftRow): Uint8Array {
  const size = row.ids.length;
  const promptLength = uncut.lossMask.indexOf(1);
  const mask = new Uint8Array(size).fill(1, Math.min(promptLength, size) - 1);
  mask[size - 1] = 0;
  return mask;
}

/** A mask of tokens as a mask of the positions that predict them. */
function predicting(lossMask: Uint8Array): Uint8Array {
  const shifted = new Uint8Array(lossMask.length);
  shifted.set(lossMask.subarray(1));
  return shifted;
}

function padded(row: SftRow, length: number, tokenizer: Tokenizer): { input_ids: number[]; attention_mask: number[] } {
  const { ids, attentionMask } = padRows([row.ids], { padId: tokenizer.padId ?? 0, length });
  return { input_ids: [...ids], attention_mask: [...attentionMask] };
}
