import { describe, expect, test } from "vitest";
import type { FinishReason } from "../rollout/request.ts";
import type { Message } from "../text/chat-template.ts";
import type { Responder } from "../train/generate/responder.ts";
import { UserError } from "../util/errors.ts";
import { Conversation } from "./conversation.ts";

type EchoOptions = { readonly room?: number; readonly finishReason?: FinishReason; readonly onAsk?: () => void };

/** Answers with how many messages it was given and the last of them, word by word; refuses more than `room` messages. */
function echo({ room = 100, finishReason = "stop", onAsk }: EchoOptions = {}) {
  const asked: (readonly Message[])[] = [];
  const responder: Responder = {
    prepare({ messages }) {
      if (messages.length > room) throw new UserError(`the prompt has ${messages.length} tokens.`);
      return {
        tokens: messages.length,
        async sample(options) {
          asked.push(messages);
          const text = `${messages.length} ${messages.at(-1)?.content}`;
          for (const piece of text.split(/(?<= )/)) {
            options.signal?.throwIfAborted();
            options.onToken?.({ index: 0, id: 1, logprob: 0, top: [], text: piece });
            onAsk?.();
          }
          options.signal?.throwIfAborted();
          const sample = {
            index: 0,
            ids: [1, 1],
            logprobs: [0, 0],
            top: [],
            text: `${text}!`,
            finishReason,
            stopReason: null,
          };
          return { samples: [sample], cachedTokens: 0, tokens: 2 };
        },
      };
    },
    close: async () => {},
  };
  return { ...responder, asked };
}

function talk(responder: Responder, options: { system?: string; maxNewTokens?: number } = {}) {
  const shown: string[] = [];
  const notes: string[] = [];
  const screen = { answer: (text: string) => shown.push(text), note: (line: string) => notes.push(line) };
  const { system, maxNewTokens = 9 } = options;
  const conversation = new Conversation({ responder, screen, sampling: { maxNewTokens }, ...(system && { system }) });
  const say = (line: string, signal = new AbortController().signal) => conversation.handle(line, signal);
  return { conversation, say, shown: () => shown.join(""), notes };
}

test("an answer is shown as it comes, to its end, and becomes part of the conversation", async () => {
  const responder = echo();
  const { say, shown, notes } = talk(responder, { system: "Be brief." });
  expect(await say("hello there")).toBe("answered");
  expect(await say("  again ")).toBe("answered");
  expect(shown()).toBe("2 hello there!\n4 again!\n");
  expect(responder.asked.at(-1)).toEqual([
    { role: "system", content: "Be brief." },
    { role: "user", content: "hello there" },
    { role: "assistant", content: "2 hello there!" },
    { role: "user", content: "again" },
  ]);
  expect(notes).toEqual([expect.stringMatching(/^2 tokens, [\d.]+ tokens\/s$/), expect.stringMatching(/tokens\/s$/)]);
});

describe("commands", () => {
  test("/reset forgets the conversation and keeps the system prompt, which /system sets", async () => {
    const { say, conversation, notes } = talk(echo());
    await say("/system Be kind.");
    await say("hello");
    expect(await say("/reset")).toBe("noted");
    expect(conversation.messages).toEqual([{ role: "system", content: "Be kind." }]);
    await say("/system");
    expect(notes.at(-1)).toBe("The system prompt is: Be kind.");
  });

  test("/exit leaves, /help lists, and an unknown command is not sent to the model", async () => {
    const responder = echo();
    const { say, notes } = talk(responder);
    expect(await say("/exit")).toBe("exit");
    expect(await say("/help")).toBe("noted");
    expect(notes).toHaveLength(4);
    expect(await say("/rest")).toBe("noted");
    expect(notes.at(-1)).toBe("/rest is no command. Did you mean /reset? /help lists them.");
    expect(await say("   ")).toBe("noted");
    expect(responder.asked).toEqual([]);
  });
});

test("a stopped answer is kept as far as it was shown", async () => {
  const controller = new AbortController();
  const { say, conversation, shown, notes } = talk(echo({ onAsk: () => controller.abort() }));
  expect(await say("hello there", controller.signal)).toBe("stopped");
  expect(shown()).toBe("1 \n");
  expect(conversation.messages.at(-1)).toEqual({ role: "assistant", content: "1 " });
  expect(notes).toEqual(["stopped"]);
});

test("a question that does not fit is refused, and the conversation stays as it was", async () => {
  const { say, conversation } = talk(echo({ room: 2 }));
  await say("one");
  const before = conversation.messages;
  await expect(say("two")).rejects.toThrow(
    "The prompt has 3 tokens. The message was not added to the conversation; /reset starts a new one.",
  );
  expect(conversation.messages).toEqual(before);
});

test("an answer that was cut names the limit", async () => {
  const short = talk(echo({ finishReason: "length" }), { maxNewTokens: 2 });
  await short.say("x");
  expect(short.notes[0]).toMatch(/; cut at --max-tokens 2$/);
  const full = talk(echo({ finishReason: "length" }));
  await full.say("x");
  expect(full.notes[0]).toMatch(/; cut because the model's context is full/);
});
