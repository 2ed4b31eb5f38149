/**
 * `trainyard chat MODEL`: a conversation in the terminal, or one question per line from a pipe.
 *
 * Answers go to stdout, everything else to stderr. Ctrl-C stops the answer that is being shown; where there is none, it ends
 * the program with 130.
 */
import { createInterface, type Interface } from "node:readline/promises";
import { Writable } from "node:stream";
import type { TrainContext } from "../train/context.ts";
import type { Responder } from "../train/generate/responder.ts";
import { UserError } from "../util/errors.ts";
import { formatCount } from "../util/format.ts";
import { apiKeyOf } from "./api-key.ts";
import { Conversation, type ConversationOptions, type Screen } from "./conversation.ts";
import { flagVerb } from "./flag-verb.ts";
import type { FlagValues } from "./flags.ts";
import type { Call } from "./verb.ts";

const flags = {
  system: { kind: "text", value: "TEXT", mayBeEmpty: true, doc: "system prompt" },
  temperature: { kind: "number", least: 0, fallback: 0.7, doc: "0 takes the likeliest token" },
  "top-p": { kind: "number", most: 1, fallback: 0.95, doc: "sample from the likeliest tokens of this probability" },
  "top-k": { kind: "count", least: -1, fallback: -1, doc: "sample from this many of the likeliest tokens; -1 for all" },
  "min-p": {
    kind: "number",
    least: 0,
    most: 1,
    fallback: 0,
    doc: "leave out tokens less likely than this share of the likeliest",
  },
  "repetition-penalty": { kind: "number", least: 0.01, fallback: 1, doc: "above 1, repeat less" },
  "max-tokens": { kind: "count", least: 1, fallback: 1024, doc: "longest answer" },
  seed: { kind: "count", least: 0, doc: "the same seed and questions give the same answers" },
  url: {
    kind: "text",
    value: "URL",
    doc: "an OpenAI-compatible server; TRAINYARD_API_KEY or else OPENAI_API_KEY is its key",
  },
  device: { kind: "choice", of: ["cpu", "webgpu", "cuda"], doc: "device to run on" },
  threads: { kind: "count", least: 0, fallback: 0, doc: "threads of the cpu device; 0 for all cores" },
} as const;

type Settings = FlagValues<typeof flags>;

export const verb = flagVerb({
  flags,
  help,
  async run({ flags: settings, words }, { env }) {
    const [model = null, extra] = words;
    if (extra !== undefined)
      throw new UserError(`\`trainyard chat\` talks to one model, and ${words.join(" and ")} are several. Keep one.`);
    if (model === null && settings.url === undefined)
      throw new UserError("`trainyard chat` needs a model: trainyard chat MODEL, a Hugging Face folder or hub id.");
    return chat(model, settings, env);
  },
});

/** Hold the conversation; returns the exit code. */
async function chat(model: string | null, settings: Settings, env: Call["env"]): Promise<number> {
  const session = new AbortController();
  let answer: AbortController | null = null;
  const interrupt = () => (answer ?? session).abort();
  process.on("SIGINT", interrupt);
  let responder: Responder | null = null;
  try {
    responder = await openResponder(model, settings, { signal: session.signal, env });
    const conversation = new Conversation({
      responder,
      screen,
      sampling: samplingOf(settings),
      system: settings.system,
    });
    const isTerminal = process.stdin.isTTY === true;
    for await (const line of isTerminal ? typedLines(interrupt, session.signal) : pipedLines(session.signal)) {
      answer = new AbortController();
      try {
        const outcome = await conversation.handle(line, AbortSignal.any([answer.signal, session.signal]));
        if (outcome === "exit") return 0;
        if (outcome === "stopped" && !isTerminal) return 130;
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

function samplingOf(settings: Settings): ConversationOptions["sampling"] {
  const { seed } = settings;
  return {
    maxNewTokens: settings["max-tokens"],
    temperature: settings.temperature,
    topP: settings["top-p"],
    topK: settings["top-k"],
    minP: settings["min-p"],
    repetitionPenalty: settings["repetition-penalty"],
    ...(seed === undefined ? {} : { seed }),
  };
}

async function openResponder(
  model: string | null,
  { url, device, threads }: Settings,
  context: TrainContext,
): Promise<Responder> {
  const { chatResponder, tokenResponder } = await import("../train/generate/responder.ts");
  if (url !== undefined) {
    const { Remote } = await import("../rollout/remote.ts");
    const remote = await Remote.open(
      {
        baseUrls: [url],
        setting: "`--url`",
        model,
        modelSetting: "MODEL",
        apiKey: apiKeyOf(context.env),
        retryMs: 0, // half of an answer may have been shown; the user asks again
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
 * Lines typed at a prompt, with history and editing. The terminal is in raw mode, so Ctrl-C comes as a key. What is typed
 * while an answer is shown appears at the next prompt.
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

/** The next line; null after the last one. */
async function question(lines: Interface, signal: AbortSignal): Promise<string | null> {
  if (signal.aborted) return null;
  try {
    const line = lines.question("> ", { signal });
    lines.write(null, { ctrl: true, name: "e" }); // shows what was typed meanwhile, with the cursor behind it
    return await line;
  } catch (error) {
    if (signal.aborted) return null;
    throw error;
  }
}

function help(options: string): string {
  return `trainyard chat: talk to a model.

Usage: trainyard chat MODEL [options]

  trainyard chat models/tiny
  trainyard chat checkpoints/project/experiment
  trainyard chat Qwen/Qwen2.5-0.5B-Instruct --system "Answer in one sentence." --temperature 0
  echo "What is the capital of France?" | trainyard chat models/tiny
  trainyard chat --url http://127.0.0.1:8000/v1

MODEL is a Hugging Face folder or hub id, or a run folder or checkpoint, whose actor is taken (the latest one of a run);
with --url, the name of a model at that server.

Options
${options}

In the conversation: /help, /reset, /system TEXT, /exit. Ctrl-C stops an answer; at the prompt it leaves.
`;
}
