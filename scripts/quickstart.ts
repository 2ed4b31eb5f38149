/**
 * `npm start`: a model of 800,000 weights, made on the spot, learns to add two digits by supervised fine-tuning.
 *
 * Everything is made here and stays in `.cache/quickstart`: a tokenizer of single characters, a random model, the
 * hundred sums as chats. Nothing is downloaded. A second start begins anew.
 */
import { mkdir, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { main } from "../src/cli/main.ts";
import { createModel } from "../src/models/create.ts";
import { readMetrics } from "../src/run/metrics.ts";
import { Random } from "../src/util/random.ts";

const root = join(import.meta.dirname, "..");
const folder = join(root, ".cache", "quickstart");
const model = join(folder, "model");

const characters = [..."0123456789+=? .ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"];
const special = ["<|user|>", "<|assistant|>", "<|end|>"];
const template =
  "{% for message in messages %}<|{{ message.role }}|>{{ message.content }}<|end|>{% endfor %}" +
  "{% if add_generation_prompt %}<|assistant|>{% endif %}";

/** A tokenizer whose tokens are characters, as a Hugging Face folder has it. */
async function writeTokenizer(): Promise<void> {
  const vocab = Object.fromEntries([...special, ...characters].map((token, id) => [token, id]));
  const flags = { single_word: false, lstrip: false, rstrip: false, normalized: false, special: true };
  const tokenizer = {
    version: "1.0",
    added_tokens: special.map((content, id) => ({ id, content, ...flags })),
    normalizer: null,
    pre_tokenizer: null,
    post_processor: null,
    decoder: { type: "Fuse" },
    model: { type: "BPE", vocab, merges: [], unk_token: null, fuse_unk: false, byte_fallback: false },
  };
  const settings = { tokenizer_class: "PreTrainedTokenizerFast", eos_token: "<|end|>", chat_template: template };
  await writeFile(join(model, "tokenizer.json"), JSON.stringify(tokenizer, null, 1));
  await writeFile(join(model, "tokenizer_config.json"), JSON.stringify(settings, null, 1));
}

/** All sums of two digits: nine in ten to learn from, the rest to be asked. */
async function writeSums(): Promise<void> {
  const sums = Array.from({ length: 100 }, (_, i) => ({
    question: `${Math.floor(i / 10)}+${i % 10}=?`,
    answer: `${Math.floor(i / 10) + (i % 10)}.`,
  }));
  const order = [...new Random(7).permutation(sums.length)];
  const lines = (picked: readonly number[]) => picked.map((i) => `${JSON.stringify(sums[i])}\n`).join("");
  await writeFile(join(folder, "train.jsonl"), lines(order.slice(10)));
  await writeFile(join(folder, "test.jsonl"), lines(order.slice(0, 10)));
}

const config = {
  architectures: ["LlamaForCausalLM"],
  model_type: "llama",
  vocab_size: special.length + characters.length,
  hidden_size: 128,
  intermediate_size: 384,
  num_hidden_layers: 4,
  num_attention_heads: 4,
  num_key_value_heads: 2,
  max_position_embeddings: 64,
  rms_norm_eps: 1e-5,
  rope_theta: 10000,
  tie_word_embeddings: true,
  bos_token_id: null,
  eos_token_id: 2,
};

async function quickstart(): Promise<number> {
  await rm(folder, { recursive: true, force: true });
  await mkdir(folder, { recursive: true });
  await createModel(model, config, 1);
  await writeTokenizer();
  await writeSums();
  const run = join(folder, "run");
  const overrides = [
    `model.path=${model}`,
    `data.train_files=${join(folder, "train.jsonl")}`,
    `data.val_files=${join(folder, "test.jsonl")}`,
    "data.prompt_key=question",
    "data.response_key=answer",
    "data.train_batch_size=90",
    "optim.lr=2e-3",
    "optim.lr_scheduler_type=cosine",
    "optim.lr_warmup_steps=10",
    "trainer.total_epochs=150",
    "trainer.test_freq=25",
    `trainer.default_local_dir=${run}`,
  ];
  console.log("A new model of 800,000 weights learns to add two digits; it has never seen ten of the hundred sums.\n");
  const code = await main(["sft", ...overrides], process.env);
  if (code !== 0) return code;

  const metrics = await readMetrics(run);
  const losses = metrics.map(({ data }) => data["train/loss"]!);
  console.log(`\n  loss ${losses[0]!.toFixed(2)} ${sparkline(losses, 60)} ${losses.at(-1)!.toFixed(3)}\n`);
  console.log("Next:");
  console.log(`  npx trainyard sft --help                      every key, with its default`);
  console.log(
    `  less ${join(".cache", "quickstart", "run", "metrics.jsonl").padEnd(41)}what was measured at each step`,
  );
  console.log(`  npx trainyard sft model.path=… data.train_files=…   your own model and rows: see README.md`);
  return 0;
}

/** A curve in one line of text. */
function sparkline(values: readonly number[], width: number): string {
  const points = Array.from({ length: width }, (_, i) => values[Math.floor((i * (values.length - 1)) / (width - 1))]!);
  const top = Math.max(...points);
  return points.map((value) => "▁▂▃▄▅▆▇█"[Math.min(7, Math.floor((value / top) * 8))]).join("");
}

process.exitCode = await quickstart();
