/**
 * `npm start`: a model of 800,000 weights, made on the spot, learns to add two digits by supervised fine-tuning.
 *
 * Everything is made here and stays in `.cache/quickstart`: a tokenizer of single characters, a random model, the
 * hundred sums as chats. Nothing is downloaded. A second start begins anew.
 */
import { mkdir, readFile, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { main } from "../src/cli/main.ts";
import { EmbeddedEngine } from "../src/engine/embedded/engine.ts";
import { createModel } from "../src/models/create.ts";
import { encodeChat } from "../src/text/chat-template.ts";
import { loadTokenizer } from "../src/text/tokenizer.ts";
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

  const trained = join(run, "global_step_150", "actor");
  console.log("\nSums it has never seen, before and after:\n");
  const [before, after] = [await answers(model), await answers(trained)];
  for (const [i, { question }] of (await testSums()).entries()) {
    console.log(`  ${question.padEnd(8)}${JSON.stringify(before[i]).padEnd(16)}${JSON.stringify(after[i])}`);
  }
  console.log("\nNext:");
  const next = [
    ["npx trainyard chat .cache/quickstart/run/global_step_150/actor", "ask it yourself"],
    ["npx trainyard ppo --help", "reinforcement learning: see docs/ppo.md"],
    ["npx trainyard sft model.path=… data.train_files=…", "your own model and rows: see README.md"],
  ];
  for (const [command, what] of next) console.log(`  ${command!.padEnd(66)}${what}`);
  return 0;
}

type Sum = { readonly question: string; readonly answer: string };

async function testSums(): Promise<Sum[]> {
  const lines = (await readFile(join(folder, "test.jsonl"), "utf8")).trim().split("\n");
  return lines.map((line): Sum => JSON.parse(line)); // written by `writeSums`
}

/** What a model answers to the sums it has never seen. */
async function answers(of: string): Promise<string[]> {
  const engine = new EmbeddedEngine();
  try {
    const opened = await engine.open({ folder: of });
    const tokenizer = await loadTokenizer(of);
    const asked = (await testSums()).map(({ question }) => {
      const messages = [{ role: "user", content: question }];
      const prompt = encodeChat(tokenizer, messages, { addGenerationPrompt: true });
      return opened.sample({ prompt, maxNewTokens: 8, temperature: 0, wantsText: true });
    });
    return (await Promise.all(asked)).map(({ samples }) => samples[0]!.text);
  } finally {
    await engine.close();
  }
}

process.exitCode = await quickstart();
