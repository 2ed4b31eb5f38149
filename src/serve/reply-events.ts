/**
 * A sample as events of a reply, while its tokens arrive: text, calls and their arguments. Chat completions and responses
 * are made of them.
 */
import type { Sample, SampledToken } from "../rollout/request.ts";
import type { Tokenizer } from "../text/tokenizer.ts";
import { type ReplyEvent, ReplyReader } from "../text/tool-calls.ts";
import { sampleText, type TextRules } from "./sample-text.ts";

export type ReplyEvents = {
  /** The events that became certain with this token. */
  push(token: Pick<SampledToken, "id">): readonly ReplyEvent[];
  /** The rest, when it is known how the sample ended. */
  end(sample: Pick<Sample, "finishReason" | "stopReason">): readonly ReplyEvent[];
};

/** Read one sample; without tools a call is text like any other. */
export function replyEvents(tokenizer: Tokenizer, rules: TextRules, hasTools: boolean): ReplyEvents {
  const text = sampleText(tokenizer, rules);
  const reader = hasTools ? new ReplyReader() : null;
  const read = (piece: string): readonly ReplyEvent[] => {
    if (reader !== null) return reader.push(piece);
    return piece === "" ? [] : [{ kind: "text", text: piece }];
  };
  return {
    push: ({ id }) => read(text.push(id)),
    end: (sample) => [...read(text.end(sample)), ...(reader?.end() ?? [])],
  };
}
