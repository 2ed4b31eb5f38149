/**
 * Makes the files that `npm start` and examples/loop.ts start with, in examples/quickstart: a model of 800,000 weights
 * that adds two numbers but mostly leaves out the carry, and sums as prompts.
 *
 *   node scripts/make-quickstart-model.ts [FOLDER]
 *
 * `trainyard sft` trains the model on generated examples. Three of four examples of each sum leave out every carry
 * (58+67=15: 8+7 ends in 5, 5+6 ends in 1). The model imitates them: its most likely answer is right only if nothing is
 * carried, which is true for three sums in ten. One example in four is right, so it sometimes samples the right answer,
 * and a reward can make that answer more likely.
 */
import { mkdir, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { main } from "../src/cli/main.ts";
import { createModel } from "../src/models/create.ts";
import { Random } from "../src/util/random.ts";

const root = join(import.meta.dirname, "..");
const target = process.argv[2] ?? join(root, "examples", "quickstart");
const work = join(root, ".cache", "make-quickstart");
const start = join(work, "start");

/** Printable ASCII, one character per token, so that any ASCII text can be a prompt. */
const characters = Array.from({ length: 95 }, (_, i) => String.fromCharCode(32 + i));
const special = ["<|user|>", "<|assistant|>", "<|system|>", "<|end|>"];
const template =
  "{% for message in messages %}<|{{ message.role }}|>{{ message.content }}<|end|>{% endfor %}" +
  "{% if add_generation_prompt %}<|assistant|>{% endif %}";

const config = {
  architectures: ["LlamaForCausalLM"],
  model_type: "llama",
  vocab_size: special.length + characters.length,
  hidden_size: 128,
  intermediate_size: 384,
  num_hidden_layers: 4,
  num_attention_heads: 4,
  num_key_value_heads: 2,
  max_position_embeddings: 128,
  rms_norm_eps: 1e-5,
  rope_theta: 10000,
  tie_word_embeddings: true,
  bos_token_id: null,
  eos_token_id: 3,
  pad_token_id: 3,
};

/** Write a tokenizer whose tokens are characters, in the format of a Hugging Face folder. */
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
  const settings = {
    tokenizer_class: "PreTrainedTokenizerFast",
    eos_token: "<|end|>",
    pad_token: "<|end|>",
    model_max_length: config.max_position_embeddings,
    chat_template: template,
  };
  await writeFile(join(start, "tokenizer.json"), `${JSON.stringify(tokenizer, null, 1)}\n`);
  await writeFile(join(start, "tokenizer_config.json"), `${JSON.stringify(settings, null, 1)}\n`);
}

type Sum = { readonly a: number; readonly b: number };

/** The sum of each column of digits, without a carry. */
const withoutCarry = ({ a, b }: Sum): number => ((Math.floor(a / 10) + Math.floor(b / 10)) % 10) * 10 + ((a + b) % 10);

const question = ({ a, b }: Sum): string => `${a}+${b}=?`;

/** How many examples there are of each sum, and how many of them are right. */
const examplesPerSum = 4;
const rightExamples = 1;

/** The rows for sft: every sum several times, most of them without carries. */
const demonstrations = (sums: readonly Sum[]): object[] =>
  sums.flatMap((sum) =>
    Array.from({ length: examplesPerSum }, (_, i) => ({
      question: question(sum),
      answer: String(i < rightExamples ? sum.a + sum.b : withoutCarry(sum)),
    })),
  );

/** Prompts with their true answers, in verl's schema. */
const prompts = (sums: readonly Sum[]): object[] =>
  sums.map((sum) => ({
    data_source: "sums",
    prompt: [{ role: "user", content: question(sum) }],
    reward_model: { style: "rule", ground_truth: String(sum.a + sum.b) },
  }));

async function writeLines(file: string, rows: readonly object[]): Promise<string> {
  await writeFile(file, rows.map((row) => `${JSON.stringify(row)}\n`).join(""));
  return file;
}

async function trainyard(...args: readonly string[]): Promise<void> {
  const code = await main(args, process.env);
  if (code !== 0) process.exit(code);
}

await rm(work, { recursive: true, force: true });
await mkdir(target, { recursive: true });
await createModel(start, config, 1);
await writeTokenizer();

const all = Array.from({ length: 10_000 }, (_, i): Sum => ({ a: Math.floor(i / 100), b: i % 100 }));
const shuffled = [...new Random(7).permutation(all.length)].map((i) => all[i]!);
const [test, rest] = [shuffled.slice(0, 128), shuffled.slice(128)];
await writeLines(join(target, "train.jsonl"), prompts(rest.slice(0, 1024)));
await writeLines(join(target, "test.jsonl"), prompts(test));
const run = join(work, "run");
await trainyard(
  "sft",
  `model.path=${start}`,
  `data.train_files=${await writeLines(join(work, "demonstrations.jsonl"), demonstrations(rest))}`,
  ...["data.prompt_key=question", "data.response_key=answer", "data.train_batch_size=256"],
  ...["optim.lr=2e-3", "optim.lr_scheduler_type=cosine", "optim.lr_warmup_steps=50", "optim.weight_decay=0.1"],
  ...["trainer.total_epochs=8", `trainer.default_local_dir=${run}`],
);
await trainyard("export", run, "--to", join(target, "model"), "--dtype", "bf16", "--force");
