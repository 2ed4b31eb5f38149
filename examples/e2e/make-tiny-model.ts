/**
 * `node examples/e2e/make-tiny-model.ts FOLDER`: makes everything that a run needs.
 *
 * FOLDER gets `model` (two layers with random weights that read digits), `reward-model` (the same with one label),
 * `train.jsonl` and `test.jsonl` (sums of two digits). The files are the same every time.
 */
import { mkdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { createModel } from "../../src/models/create.ts";

const tokens = ["<pad>", "<end>", ..."0123456789+="];

const config = {
  architectures: ["LlamaForCausalLM"],
  model_type: "llama",
  vocab_size: tokens.length,
  hidden_size: 32,
  intermediate_size: 64,
  num_hidden_layers: 2,
  num_attention_heads: 2,
  num_key_value_heads: 1,
  max_position_embeddings: 64,
  rms_norm_eps: 1e-5,
  rope_theta: 10000,
  tie_word_embeddings: true,
  initializer_range: 0.1,
  bos_token_id: null,
  eos_token_id: 1,
  pad_token_id: 0,
};
const classifier = { architectures: ["LlamaForSequenceClassification"], num_labels: 1 };

const flags = { single_word: false, lstrip: false, rstrip: false, normalized: false, special: true };
const tokenizer = {
  version: "1.0",
  added_tokens: tokens.slice(0, 2).map((content, id) => ({ id, content, ...flags })),
  normalizer: null,
  pre_tokenizer: { type: "Split", pattern: { Regex: "." }, behavior: "Isolated", invert: false },
  post_processor: null,
  decoder: { type: "Fuse" },
  model: { type: "WordLevel", vocab: Object.fromEntries(tokens.map((token, id) => [token, id])), unk_token: "<pad>" },
};
// A reward model reads chats; its template joins the messages.
const settings = {
  tokenizer_class: "PreTrainedTokenizerFast",
  eos_token: "<end>",
  pad_token: "<pad>",
  chat_template: "{% for message in messages %}{{ message.content }}{% endfor %}",
};

/** Write a model's folder with the tokenizer. */
async function writeModel(folder: string, raw: Readonly<Record<string, unknown>>): Promise<void> {
  await createModel(folder, raw, 1);
  await writeFile(join(folder, "tokenizer.json"), JSON.stringify(tokenizer));
  await writeFile(join(folder, "tokenizer_config.json"), JSON.stringify(settings));
}

/** The sums of two digits from number `from` up to `to` of the hundred. */
function sums(from: number, to: number): string {
  const rows = Array.from({ length: to - from }, (_, i) => {
    const [a, b] = [Math.floor((from + i) / 10), (from + i) % 10];
    const row = {
      prompt: `${a}+${b}=`,
      data_source: "sums",
      reward_model: { style: "rule", ground_truth: `${a + b}` },
    };
    return `${JSON.stringify({ ...row, extra_info: { index: from + i } })}\n`;
  });
  return rows.join("");
}

const [folder] = process.argv.slice(2);
if (folder === undefined) {
  process.stderr.write("Name the folder to write to: node examples/e2e/make-tiny-model.ts FOLDER\n");
  process.exit(2);
}
await mkdir(folder, { recursive: true });
await writeModel(join(folder, "model"), config);
await writeModel(join(folder, "reward-model"), { ...config, ...classifier });
await writeFile(join(folder, "train.jsonl"), sums(0, 92));
await writeFile(join(folder, "test.jsonl"), sums(92, 100));
