/**
 * `trainyard chat MODEL`: a conversation in the terminal, or one question per line from a pipe.
 *
 * Answers go to stdout, everything else to stderr. Ctrl-C ends the answer that is being given; where none is, it ends the
 * program with 130.
 */
import { createInterface, type Interface } from "node:readline/promises";
import { Writable } from "node:stream";
import { parseArgs } from "node:util";
import type { Responder } from "../train/generate/responder.ts";
import { messageOf, UserError } from "../util/errors.ts";
import { formatCount } from "../util/format.ts";
import type { Call } from "./call.ts";
import { Conversation, type Screen } from "./conversation.ts";

const help = `trainyard chat: talk to a model.

Usage: trainyard chat MODEL [options]

  trainyard chat models/tiny
  trainyard chat Qwen/Qwen2.5-0.5B-Instruct --system "Answer in one sentence." --temperature 0
  echo "What is the capital of France?" | trainyard chat models/tiny
  trainyard chat --url http://127.0.0.1:8000/v1

MODEL is a Hugging Face folder or hub id; with --url, the name of a model at that server.

Options
  --system TEXT             system prompt
  --temperature N           0 takes the likeliest token (0.7)
  --top-p N                 draw from the likeliest tokens of this probability (0.95)
  --top-k N                 draw from so many of the likeliest tokens; -1 for all (-1)
  --min-p N                 leave out tokens less likely than this share of the likeliest (0)
  --repetition-penalty N    above 1, repeat less (1)
  --max-tokens N            longest answer (1024)
  --seed N                  the same seed and questions give the same answers
  --url URL                 an OpenAI-compatible server; OPENAI_API_KEY is its key
  --device cpu|webgpu|cuda  (cpu)
  --threads N               threads of the cpu device; 0 for all cores (0)
  --help                    this text

In the conversation: /help, /reset, /system TEXT, /exit. Ctrl-C stops an answer; at the prompt it leaves.
`;

/** Run the verb; returns the exit code. */
export async function run({ args, env }: Call): Promise<number> {
  const settings = readArguments(args);
  if (settings === null) {
    process.stdout.write(help);
    return 0;
  }
  const session = new AbortController();
  let answer: AbortController | null = null;
  const interrupt = () => (answer ?? session).abort();
  process.on("SIGINT", interrupt);
  let responder: Responder | null = null;
  try {
    responder = await openResponder(settings, { signal: session.signal, env });
    const { system, sampling } = settings;
    const conversation = new Conversation({ responder, screen, sampling, system });
    const isTerminal = process.stdin.isTTY === true;
    for await (const line of isTerminal ? typedLines(interrupt, session.signal) : pipedLines(session.signal)) {
      answer = new AbortController();
      try {
        const turn = await conversation.take(line, AbortSignal.any([answer.signal, session.signal]));
        if (turn === "exit") return 0;
        if (turn === "stopped" && !isTerminal) return 130;
      } catch (error) {
        if (!isTerminal || !(error instanceof UserError)) throw error;
        screen.note(error.message);
      } finally {
        answer = null;
      }
    }
    return session.signal.aborted ? 130 : 0;
  } catch (error) {
    if (session.signal.aborted) return 130;
    throw error;
  } finally {
    process.off("SIGINT", interrupt);
    await responder?.close();
  }
}

const screen: Screen = {
  answer: (text) => process.stdout.write(text),
  note: (line) => process.stderr.write(process.stderr.isTTY ? `\x1b[2m${line}\x1b[22m\n` : `${line}\n`),
};

type Settings = {
  readonly model: string | null;
  readonly url: string | null;
  readonly system: string | undefined;
  readonly device: "cpu" | "webgpu" | "cuda";
  readonly threads: number;
  readonly sampling: {
    readonly maxNewTokens: number;
    readonly temperature: number;
    readonly topP: number;
    readonly topK: number;
    readonly minP: number;
    readonly repetitionPenalty: number;
    readonly seed?: number;
  };
};

const text = { type: "string" } as const;
const flags = {
  system: text,
  temperature: text,
  "top-p": text,
  "top-k": text,
  "min-p": text,
  "repetition-penalty": text,
  "max-tokens": text,
  seed: text,
  url: text,
  device: text,
  threads: text,
  help: { type: "boolean", short: "h" },
} as const;

/** Null asks for help. */
function readArguments(args: readonly string[]): Settings | null {
  const { values, positionals } = parseFlags(args);
  if (values.help === true) return null;
  const [model = null, ...more] = positionals;
  if (more.length > 0)
    throw new UserError(
      `\`trainyard chat\` talks to one model, and ${positionals.join(" and ")} are several. Keep one.`,
    );
  const url = values.url ?? null;
  if (model === null && url === null)
    throw new UserError("`trainyard chat` needs a model: trainyard chat MODEL, a Hugging Face folder or hub id.");
  const number = (
    name: keyof typeof values & string,
    fallback: number,
    { min = 0, max = Number.POSITIVE_INFINITY, isWhole = false } = {},
  ) => {
    const written = values[name];
    if (written === undefined) return fallback;
    const value = typeof written === "string" && written.trim() !== "" ? Number(written) : Number.NaN;
    if (value >= min && value <= max && (!isWhole || Number.isInteger(value))) return value;
    const range = max === Number.POSITIVE_INFINITY ? `of at least ${min}` : `from ${min} to ${max}`;
    throw new UserError(`\`--${name}\` is ${written}; it takes a ${isWhole ? "whole " : ""}number ${range}.`);
  };
  const { device = "cpu" } = values;
  if (device !== "cpu" && device !== "webgpu" && device !== "cuda")
    throw new UserError(`\`--device\` is ${device}; it takes cpu, webgpu or cuda.`);
  return {
    model,
    url,
    system: values.system,
    device,
    threads: number("threads", 0, { isWhole: true }),
    sampling: {
      maxNewTokens: number("max-tokens", 1024, { min: 1, isWhole: true }),
      temperature: number("temperature", 0.7),
      topP: number("top-p", 0.95, { min: 1e-6, max: 1 }),
      topK: number("top-k", -1, { min: -1, isWhole: true }),
      minP: number("min-p", 0, { max: 1 }),
      repetitionPenalty: number("repetition-penalty", 1, { min: 0.01 }),
      ...(values.seed === undefined ? {} : { seed: number("seed", 0, { isWhole: true }) }),
    },
  };
}

function parseFlags(args: readonly string[]) {
  try {
    return parseArgs({ args: [...args], options: flags, allowPositionals: true });
  } catch (error) {
    const reason = messageOf(error).split(/\. To specify|\n/)[0];
    throw new UserError(`${reason}. trainyard chat --help lists the options.`, { cause: error });
  }
}

type Context = { readonly signal: AbortSignal; readonly env: Call["env"] };

async function openResponder({ model, url, device, threads }: Settings, context: Context): Promise<Responder> {
  const { chatResponder, tokenResponder } = await import("../train/generate/responder.ts");
  if (url !== null) {
    const { Remote } = await import("../rollout/remote.ts");
    const remote = await Remote.open(
      {
        baseUrls: [url],
        setting: "`--url`",
        model,
        modelSetting: "MODEL",
        apiKey: context.env.OPENAI_API_KEY,
        retryMs: 0, // half an answer has been shown by then; the user asks again
      },
      context.signal,
    );
    screen.note(`Talking to ${remote.model} at ${url}. /help lists the commands.`);
    return chatResponder(remote);
  }
  const { findModel } = await import("../train/local-model.ts");
  const local = await findModel({ path: model ?? "", device, threads }, context);
  const { tokenizer, config, sampler } = local;
  if (tokenizer.chatTemplate === null) {
    throw new UserError(
      `${model} has no chat template (chat_template.jinja, or \`chat_template\` in tokenizer_config.json), so it cannot ` +
        "hold a conversation. Use an instruct or chat version of the model; trainyard generate continues plain texts.",
    );
  }
  await sampler.open();
  const { maxPositions: maxLength, vocabSize } = config;
  screen.note(`Talking to ${model} (context of ${formatCount(maxLength)} tokens). /help lists the commands.`);
  return tokenResponder(sampler, { tokenizer, vocabSize, maxLength, maxLengthSetting: "the model's context" });
}

/** Lines of a pipe or file. */
async function* pipedLines(signal: AbortSignal): AsyncGenerator<string> {
  const lines = createInterface({ input: process.stdin, crlfDelay: Number.POSITIVE_INFINITY });
  signal.addEventListener("abort", () => lines.close(), { once: true });
  try {
    for await (const line of lines) yield line;
  } finally {
    lines.close();
  }
}

/**
 * Lines typed at a prompt, with history and editing. The terminal is in raw mode, so Ctrl-C comes as a key; what is typed
 * while an answer is shown waits unseen for the prompt.
 */
async function* typedLines(interrupt: () => void, signal: AbortSignal): AsyncGenerator<string> {
  let isShown = true;
  const output = new Writable({
    write(chunk, _encoding, done) {
      if (isShown) process.stdout.write(chunk);
      done();
    },
  });
  Object.defineProperty(output, "columns", { get: () => process.stdout.columns });
  const lines = createInterface({ input: process.stdin, output, terminal: true, historySize: 200 });
  const closed = new AbortController(); // Ctrl-D
  lines.on("SIGINT", interrupt);
  lines.on("close", () => closed.abort());
  const resized = () => output.emit("resize");
  process.stdout.on("resize", resized);
  try {
    for (;;) {
      isShown = true;
      const line = await question(lines, AbortSignal.any([signal, closed.signal]));
      if (line === null) {
        process.stdout.write("\n");
        return;
      }
      isShown = false;
      yield line;
    }
  } finally {
    process.stdout.off("resize", resized);
    lines.close();
  }
}

/** The next line, or null when there will be none. */
async function question(lines: Interface, signal: AbortSignal): Promise<string | null> {
  if (signal.aborted) return null;
  try {
    const line = lines.question("> ", { signal });
    lines.write(null, { ctrl: true, name: "e" }); // what was typed meanwhile is shown; the cursor goes behind it
    return await line;
  } catch (error) {
    if (signal.aborted) return null;
    throw error;
  }
}
