/**
 * What `trainyard sft` says to input that cannot work: one message that names the thing and a way out, exit code 2.
 *
 * Every case runs twice: in a folder that is not there, which must not appear, and over an earlier run
 * (`resume_mode=disable`), of which no byte may change.
 */
import { spawnSync } from "node:child_process";
import { existsSync } from "node:fs";
import { mkdir, open, readdir, readFile, rename, rm, stat, truncate, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { createModel } from "../src/models/create.ts";
import { readAll, writeSafetensors } from "../src/models/safetensors.ts";
import { openWeights } from "../src/models/weights.ts";
import { checksums, Sandbox, sum, tinyConfig } from "./sandbox.ts";

let box: Sandbox;
beforeAll(async () => {
  box = await Sandbox.make();
  expect(await box.sft("earlier", "trainer.total_training_steps=2")).toMatchObject({ code: 0 });
});
afterAll(() => box.remove());

/** One message: a single line without a stack or other internals of the program. */
function expectOneMessage({ code, said }: { code: unknown; said: string }, expected: RegExp): void {
  expect(said).toMatch(expected);
  expect(said).not.toMatch(/\n\s+at |internal:|undefined|\[object|bug in trainyard|\bNaN\b/);
  expect(said.trimEnd().split("\n")).toHaveLength(1);
  expect(said).toMatch(/^\S.*[.?)]\n$/);
  expect(code).toBe(2);
}

type Case = { readonly what: string; readonly says: RegExp; make(): Promise<readonly string[]> };

/** A case with a copy of the model that `damage` changes. */
function model(what: string, says: RegExp, damage: (folder: string) => Promise<unknown>): Case {
  const make = async () => {
    const folder = await box.copyModel(what.replaceAll(/\W/g, "-"));
    await damage(folder);
    return [`model.path=${folder}`];
  };
  return { what, says, make };
}

/** A case with a data file of this name and text. */
function data(what: string, says: RegExp, name: string, text: string, ...keys: readonly string[]): Case {
  const make = async () => {
    await writeFile(box.path(name), text);
    return [`data.train_files=${box.path(name)}`, ...keys];
  };
  return { what, says, make };
}

/** A case that only needs keys. */
const keys = (what: string, says: RegExp, ...given: readonly string[]): Case => ({
  what,
  says,
  make: async () => given,
});

const weights = (folder: string) => join(folder, "model.safetensors");
const line = (row: object) => `${JSON.stringify(row)}\n`;

async function patchConfig(folder: string, change: object): Promise<void> {
  const path = join(folder, "config.json");
  await writeFile(path, JSON.stringify({ ...JSON.parse(await readFile(path, "utf8")), ...change }));
}

async function patchBytes(path: string, at: number, text: string): Promise<void> {
  const file = await open(path, "r+");
  await file.write(Buffer.from(text), 0, text.length, at);
  await file.close();
}

/** An index of two shards, of which only the first exists. */
async function loseShard(folder: string): Promise<void> {
  const names = [...(await openWeights(folder)).tensors.keys()];
  const [first, second] = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"];
  const weight_map = Object.fromEntries(names.map((name, index) => [name, index < 5 ? first : second]));
  await rename(weights(folder), join(folder, first));
  await writeFile(join(folder, "model.safetensors.index.json"), JSON.stringify({ weight_map }));
}

async function loseTensor(folder: string, lost: string): Promise<void> {
  const tensors = [...(await readAll(weights(folder)))].filter(([name]) => name !== lost);
  const sources = tensors.map(([name, { shape, data }]) => ({
    name,
    shape,
    data: () => Float32Array.from(data as Float32Array),
  }));
  await writeSafetensors(weights(folder), sources, { dtype: "F32" });
}

const chat = line({
  messages: [
    { role: "user", content: "1+1=?" },
    { role: "assistant", content: "2." },
  ],
});
const supported = /llama, mistral, qwen2, qwen3, gemma, gemma2/i;

const cases: readonly Case[] = [
  model(
    "a safetensors file that was cut short",
    /model\.safetensors is not a whole safetensors file: .* it was cut short\. Download or copy it again\./,
    async (folder) => truncate(weights(folder), (await stat(weights(folder))).size - 100),
  ),
  model(
    "a safetensors file with a broken header",
    /model\.safetensors is not a whole safetensors file: its header is not JSON .* Download or copy it again\./,
    (folder) => patchBytes(weights(folder), 8, "broken"),
  ),
  model(
    "a tensor of another shape",
    /"model\.layers\.0\.mlp\.\w+\.weight" has the shape \[64, 32\] where config\.json asks for \[96, 32\]\. Check/,
    (folder) => patchConfig(folder, { intermediate_size: 96 }),
  ),
  model(
    "a shard that is missing",
    /model-00002-of-00002\.safetensors is not there, but model\.safetensors\.index\.json names it\. Download/,
    loseShard,
  ),
  model(
    "a tensor that is missing",
    /has no tensor "model\.norm\.weight"\..* Check that config\.json belongs/,
    (folder) => loseTensor(folder, "model.norm.weight"),
  ),
  model("no weights", /no-weights has neither model\.safetensors nor .*\. Check the path/, (folder) =>
    rm(weights(folder)),
  ),
  model("a family that is not known", supported, (folder) =>
    patchConfig(folder, { model_type: "mamba", architectures: ["MambaForCausalLM"] }),
  ),
  model(
    "a config.json that is not JSON",
    /config\.json is not JSON: .*\. Download or copy the file again\./,
    (folder) => writeFile(join(folder, "config.json"), '{"model_type": "llama",'),
  ),
  model("no config.json", /config\.json is not there\. .*check the path\./, (folder) =>
    rm(join(folder, "config.json")),
  ),
  model("no tokenizer.json", /no-tokenizer-json has no tokenizer\.json\. .*save_pretrained\(folder\)\./, (folder) =>
    rm(join(folder, "tokenizer.json")),
  ),
  model("a tokenizer.json that is not JSON", /tokenizer\.json is not JSON: .*\. Download the file again\./, (folder) =>
    truncate(join(folder, "tokenizer.json"), 1000),
  ),
  model(
    "a tokenizer with more tokens than the model",
    /train\.jsonl, line 1: the tokenizer in .* gives the token 42\d .* `vocab_size` is 300\. Use the tokenizer/,
    (folder) => createModel(folder, { ...tinyConfig, vocab_size: 300 }, 1),
  ),
  {
    what: "a conversation for a tokenizer without a chat template",
    says: /chats\.jsonl, line 1, column `messages`: The tokenizer of .* has no chat template.* Set `.*custom_chat_template`/,
    make: async () => {
      const folder = await box.copyModel("no-template");
      await rm(join(folder, "chat_template.jinja"), { force: true });
      await writeFile(box.path("chats.jsonl"), chat);
      const rows = [
        `data.train_files=${box.path("chats.jsonl")}`,
        "data.multiturn.enable=true",
        "data.train_batch_size=1",
      ];
      return [`model.path=${folder}`, ...rows];
    },
  },
  keys(
    "a model that is nowhere",
    /There is no folder "nowhere\/at\/all"\. Give the folder .* or the name/,
    "model.path=nowhere/at/all",
  ),
  keys(
    "a hub name without a network",
    /The model some\/model is not in the cache .* HF_HUB_OFFLINE .*Unset it, or/,
    "model.path=some/model",
  ),
  keys(
    "data that are not there",
    /absent\.jsonl does not exist\. Check the path \(`data\.train_files`/,
    "data.train_files=absent.jsonl",
  ),
  data(
    "a parquet file that is not one",
    /rows\.parquet cannot be read as parquet: .*\. Copy or write the file again/,
    "rows.parquet",
    "question,answer\n1+1=?,2.\n",
  ),
  data(
    "a file of an unknown kind",
    /rows\.csv has an extension that is not known here\. .*\.parquet, \.jsonl/,
    "rows.csv",
    "a",
  ),
  data(
    "a broken line",
    /broken\.jsonl, line 3, column 16: not JSON: .*\. Correct or remove that line\./,
    "broken.jsonl",
    `${line(sum(1))}${line(sum(2))}{"question": "3\n`,
  ),
  data(
    "a row without the column",
    /missing\.jsonl, line 2: there is no column `question`\. The columns are `questions`, `answer`\. Did you mean `data\.prompt_key=questions`\?/,
    "missing.jsonl",
    `${line(sum(1))}${line({ questions: "1+1=?", answer: "2." })}`,
  ),
  data(
    "a value of another type",
    /typed\.jsonl, line 2, column `answer`: expected text, found the number 2\./,
    "typed.jsonl",
    `${line(sum(1))}${line({ question: "1+1=?", answer: 2 })}`,
  ),
  data(
    "a row that is too long",
    /long\.jsonl, line 1: the example has \d+ tokens, and `data\.max_length` is 128\. Raise it, or set `data\.truncation`/,
    "long.jsonl",
    line({ question: "1 + ".repeat(200), answer: "200" }),
  ),
  data("an empty file", /empty\.jsonl is empty \(0 bytes\)\. Write it again, or leave it out\./, "empty.jsonl", ""),
  data("a file without rows", /blank\.jsonl has no rows\. Write it again, or leave it out\./, "blank.jsonl", "\n\n"),
  keys("a misspelt key", /`data\.trian_files` .* is not a key of `sft`.*`data\.train_files`/, "data.trian_files=x"),
  keys("a key of the wrong type", /`optim\.lr` .*fast/, "optim.lr=fast"),
  keys(
    "a tracker that is not there",
    /`trainer\.logger` is "tensorbord", which does not exist\. Did you mean "tensorboard"\?/,
    "trainer.logger=[console,tensorbord]",
  ),
  keys(
    "a tracker without a client",
    /`trainer\.logger` names swanlab, and there is no client of SwanLab for Node.* Choose from /,
    "trainer.logger=swanlab",
  ),
  keys(
    "a tracker without its server",
    /`trainer\.logger` names mlflow, but MLFLOW_TRACKING_URI is not set\. Start a server/,
    "trainer.logger=[console,wandb,mlflow]",
  ),
  keys("LoRA", /`model\.lora_rank`.*LoRA is not supported by this version\. Leave the key out/, "model.lora_rank=8"),
  keys(
    "a batch larger than the data",
    /There are 32 rows, .* one batch of 64\. Lower .*`data\.train_batch_size`/,
    "data.train_batch_size=64",
  ),
];

for (const { what, says, make } of cases) {
  test(`${what} is one message, and nothing is written`, async () => {
    const given = await make();
    expectOneMessage(await box.sft("never", ...given), says);
    expect(existsSync(box.path("never"))).toBe(false);
    const before = await checksums(box.path("earlier"));
    expectOneMessage(await box.sft("earlier", "trainer.resume_mode=disable", ...given), says);
    expect(await checksums(box.path("earlier"))).toEqual(before);
  });
}

test("a run folder below a file is one message", async () => {
  const before = await readFile(box.train);
  const given = `trainer.default_local_dir=${join(box.train, "run")}`;
  expectOneMessage(
    await box.sft("never", given),
    /train\.jsonl\/run cannot be written: a part of the path is a file.*Choose/,
  );
  expect(await readFile(box.train)).toEqual(before);
});

test.each(["webgpu", "cuda"])("%s trains, or is refused by its name where it is not there", async (device) => {
  const child = box.startSft(device, `trainer.device=${device}`, "trainer.total_training_steps=1");
  const code = await child.ended;
  if (code === 0) return;
  expect(code).toBe(2);
  expect(existsSync(box.path(device))).toBe(false); // a run that cannot start leaves no folder
  // The native library prints lines of its own before ours.
  const ours = child.said.slice(child.said.indexOf("The device `"));
  expect(ours).toMatch(
    new RegExp(`^The device \`${device}\` cannot be used here \\(.*\\)\\. Set \`trainer\\.device=cpu\``),
  );
});

/** What an interrupted save must not leave: temporary names, a lock. */
async function unfinished(run: string): Promise<string[]> {
  return (await readdir(box.path(run))).filter((name) => name.startsWith(".") || name === "run.lock");
}

describe("a disk that is full while saving", () => {
  /** The save of step 3 is refused; step 2 is unchanged, and with room again the run ends like an uninterrupted one. */
  async function expectIntact(
    run: string,
    says: RegExp,
    fill: () => Promise<{ code: unknown; said: string }>,
  ): Promise<void> {
    const before = await checksums(box.path(run, "global_step_2"));
    const { code, said } = await fill();
    expectOneMessage({ code, said: `${said.trimEnd().split("\n").at(-1)}\n` }, says);
    expect(await checksums(box.path(run, "global_step_2"))).toEqual(before);
    expect(await readFile(box.path(run, "latest_checkpointed_iteration.txt"), "utf8")).toBe("2");
    expect(existsSync(box.path(run, "global_step_3"))).toBe(false);
    expect(await unfinished(run)).toEqual([]);
  }
  const four = ["trainer.total_training_steps=4", "trainer.save_freq=1", "data.val_files=null"];
  const two = [...four, "trainer.total_training_steps=2"];

  test.skipIf(process.platform === "win32")(
    "by a limit on file sizes: one message, the earlier checkpoint whole (skipped on Windows)",
    async () => {
      expect(await box.sft("unlimited", ...four)).toMatchObject({ code: 0 });
      expect(await box.sft("limited", ...two)).toMatchObject({
        code: 0,
      });
      await expectIntact("limited", /global_step_3\S* cannot be written: .* Choose another folder/, async () => {
        const child = box.startSftUnder("limited", limitFiles(200_000), ...four);
        return { code: await child.ended, said: child.said };
      });
      expect(await box.sft("limited", ...four)).toMatchObject({ code: 0 });
      expect(await box.outcome("limited")).toEqual(await box.outcome("unlimited"));
    },
  );

  test.skipIf(!canMount())(
    "by a small file system: one message, the earlier checkpoint whole (skipped where tmpfs cannot be mounted)",
    async () => {
      const run = "small/run";
      await mkdir(box.path("small"));
      const mounted = spawnSync("mount", ["-t", "tmpfs", "-o", "size=1m", "tmpfs", box.path("small")]);
      expect(mounted.status).toBe(0);
      try {
        expect(await box.sft(run, ...two)).toMatchObject({ code: 0 });
        await expectIntact(run, /global_step_3\S* cannot be written: the disk is full\. Free some space/, () =>
          box.sft(run, ...four),
        );
        const room = spawnSync("mount", ["-o", "remount,size=4m", box.path("small")]);
        expect(room.status).toBe(0);
        expect(await box.sft(run, ...four)).toMatchObject({ code: 0 });
      } finally {
        spawnSync("umount", ["-l", box.path("small")]);
      }
    },
  );
});

/** A shell that runs its arguments with a limit on the size of any file; a write past it gives an error and does not end the program. */
const limitFiles = (bytes: number): readonly string[] => [
  "sh",
  "-c",
  `trap "" XFSZ; ulimit -f ${Math.floor(bytes / 512)}; exec "$@"`,
  "sh",
];

/** Whether this process may mount a file system; being root in a container is not enough. */
function canMount(): boolean {
  if (process.platform !== "linux" || process.getuid?.() !== 0) return false;
  const probe = join(tmpdir(), `trainyard-mount-${process.pid}`);
  const script = `mkdir ${probe} && mount -t tmpfs -o size=64k tmpfs ${probe} && umount ${probe}; s=$?; rmdir ${probe}; exit $s`;
  return spawnSync("sh", ["-c", script]).status === 0;
}
