/**
 * A conversation with a model, line by line: questions, commands, and notes about them.
 *
 * It knows no terminal: answers are shown piece by piece through `Screen`. No message is ever dropped silently: a question
 * that does not fit the model's context is refused, and the conversation stays as it was.
 */

import type { Message } from "../text/chat-template.ts";
import type { Responder, SampleOptions } from "../train/generate/responder.ts";
import { nearest, UserError } from "../util/errors.ts";
import { counted } from "../util/format.ts";

/** Where a conversation is shown. */
export type Screen = {
  /** A piece of an answer. */
  answer(text: string): void;
  /** A line about the conversation. */
  note(line: string): void;
};

export type ConversationOptions = {
  readonly responder: Responder;
  readonly screen: Screen;
  /** How answers are sampled. */
  readonly sampling: Omit<SampleOptions, "signal" | "onToken">;
  readonly system?: string | undefined;
};

/** What became of a line; `noted` for a command. */
export type Outcome = "answered" | "stopped" | "noted" | "exit";

type Command = { readonly usage: string; readonly help: string };

const commands: Readonly<Record<string, Command>> = {
  "/help": { usage: "/help", help: "this list" },
  "/reset": { usage: "/reset", help: "forget the conversation; the system prompt stays" },
  "/system": { usage: "/system TEXT", help: "set the system prompt; without a text, show it" },
  "/exit": { usage: "/exit", help: "leave (also Ctrl-D)" },
};

export class Conversation {
  readonly #options: ConversationOptions;
  #system: string;
  #messages: Message[] = [];

  constructor(options: ConversationOptions) {
    this.#options = options;
    this.#system = options.system ?? "";
  }

  /** The messages so far, the system prompt first. */
  get messages(): readonly Message[] {
    const system: Message[] = this.#system === "" ? [] : [{ role: "system", content: this.#system }];
    return [...system, ...this.#messages];
  }

  /** Handle one line: a command, or a question that is answered. A question that is refused changes nothing. */
  async handle(line: string, signal: AbortSignal): Promise<Outcome> {
    const text = line.trim();
    if (text === "") return "noted";
    return text.startsWith("/") ? this.#command(text) : await this.#ask(text, signal);
  }

  #command(text: string): Outcome {
    const [name = "", rest = ""] = [text.split(/\s/, 1)[0], text.replace(/^\S+\s*/, "")];
    const { note } = this.#options.screen;
    switch (name) {
      case "/exit":
      case "/quit":
        return "exit";
      case "/help":
        for (const { usage, help } of Object.values(commands)) note(`${usage.padEnd(14)} ${help}`);
        return "noted";
      case "/reset":
        this.#messages = [];
        note("The conversation is empty.");
        return "noted";
      case "/system":
        if (rest !== "") this.#system = rest;
        note(this.#system === "" ? "There is no system prompt." : `The system prompt is: ${this.#system}`);
        return "noted";
      default: {
        const [close] = nearest(name, Object.keys(commands), 1);
        note(`${name} is no command.${close === undefined ? "" : ` Did you mean ${close}?`} /help lists them.`);
        return "noted";
      }
    }
  }

  async #ask(text: string, signal: AbortSignal): Promise<Outcome> {
    const { responder, screen, sampling } = this.#options;
    const asked: Message = { role: "user", content: text };
    const prompt = this.#prepare([...this.messages, asked], responder);
    const start = performance.now();
    let shown = "";
    const show = (piece: string) => {
      shown += piece;
      screen.answer(piece);
    };
    const keep = () => this.#messages.push(asked, { role: "assistant", content: shown });
    try {
      const onToken = ({ text: piece }: { text: string }) => {
        if (!signal.aborted && piece !== "") show(piece);
      };
      const { samples, tokens } = await prompt.sample({ ...sampling, signal, onToken });
      const [sample] = samples;
      if (sample?.text.startsWith(shown) === true) show(sample.text.slice(shown.length));
      screen.answer("\n");
      keep();
      const isCut = sample?.finishReason === "length";
      const speed = (tokens / (performance.now() - start)) * 1000;
      screen.note(
        `${counted(tokens, "token")}, ${speed.toFixed(1)} tokens/s${isCut ? `; ${this.#cutAt(tokens)}` : ""}`,
      );
      return "answered";
    } catch (error) {
      if (!signal.aborted) throw error;
      screen.answer("\n");
      if (shown !== "") keep(); // the model continues from what was shown
      screen.note(shown === "" ? "stopped before the first word; the question is forgotten" : "stopped");
      return "stopped";
    }
  }

  #prepare(messages: readonly Message[], responder: Responder): ReturnType<Responder["prepare"]> {
    try {
      return responder.prepare({ messages, text: null });
    } catch (error) {
      if (!(error instanceof UserError)) throw error;
      const isLater = this.#messages.length > 0;
      throw new UserError(
        `${error.message.charAt(0).toUpperCase()}${error.message.slice(1)} The message was not added to the conversation` +
          `${isLater ? "; /reset starts a new one." : "."}`,
        { cause: error },
      );
    }
  }

  #cutAt(tokens: number): string {
    return tokens >= this.#options.sampling.maxNewTokens
      ? `cut at --max-tokens ${this.#options.sampling.maxNewTokens}`
      : "cut because the model's context is full, /reset starts a new conversation";
  }
}
