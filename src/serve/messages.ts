/**
 * The conversation of a chat request: checked, and turned into token ids by the model's chat template.
 *
 * Templates ignore silently what they do not support, so this is an error here: parts that are not text, and tools if
 * the template does not use them.
 */
import * as z from "zod";
import { type ChatOptions, type Message, renderChat } from "../text/chat-template.ts";
import { TemplateRaised } from "../text/template-globals.ts";
import { messageOf, UserError } from "../util/errors.ts";
import type { JsonObject } from "./body.ts";
import { flag, show } from "./fields.ts";
import { encodeText } from "./prompts.ts";
import { RequestError } from "./request-error.ts";
import type { Service } from "./service.ts";

const roles = ["system", "developer", "user", "assistant", "tool"] as const;

const call = z.looseObject(
  {
    function: z.looseObject(
      {
        name: z.string("a text"),
        arguments: z.union([z.string(), z.record(z.string(), z.unknown())], "JSON in a text, or an object"),
      },
      "an object with `name` and `arguments`",
    ),
  },
  "an object with `function`",
);

const message = z.looseObject(
  {
    role: z.enum(roles, `one of ${roles.join(", ")}`),
    content: z
      .union(
        [z.string(), z.array(z.looseObject({ type: z.string() }))],
        'a text or a list of parts such as {"type": "text", "text": "…"}',
      )
      .nullish(),
    tool_calls: z.array(call, "a list of calls").nullish(),
    tool_call_id: z.string("a text").nullish(),
    name: z.string("a text").nullish(),
    reasoning_content: z.string("a text").nullish(),
  },
  "an object with `role` and `content`",
);

const tool = z.looseObject(
  {
    type: z.literal("function", '"function", the only supported kind of tool'),
    function: z.looseObject(
      {
        name: z
          .string("a name of letters, digits, _ and -")
          .regex(/^[\w.-]{1,64}$/, "a name of 1 to 64 letters, digits, _ and -"),
        description: z.string("a text").nullish(),
        parameters: z.record(z.string(), z.unknown(), "a JSON schema").nullish(),
      },
      "an object with `name` and `parameters`",
    ),
  },
  "an object with `type` and `function`",
);

/** The fields of a conversation, shared by chat completions and `/tokenize`. */
export const conversationFields = {
  messages: z.array(message, "a list of messages").min(1, "a list with at least one message"),
  tools: z.array(tool, "a list of tools").max(128, "a list of at most 128 tools").optional(),
  chat_template_kwargs: z.record(z.string(), z.unknown(), "an object of template variables").optional(),
  add_generation_prompt: flag.optional(),
  continue_final_message: flag.default(false),
};

const conversation = z.object(conversationFields);
type Conversation = z.infer<typeof conversation>;

/** The token ids of a conversation; `body` is the original request, because the model gets tools as they were written. */
export function encodeConversation(
  service: Service,
  fields: Conversation,
  { body, hasTools }: { body: JsonObject; hasTools: boolean },
): Int32Array {
  const { tokenizer, chatTemplate } = service;
  const template = chatTemplate ?? (hasTools ? tokenizer.toolTemplate : null) ?? tokenizer.chatTemplate;
  if (template === null) {
    throw new RequestError(
      400,
      "This model has no chat template, so messages cannot be turned into a prompt. Use /v1/completions, or start the " +
        "server with `--chat-template FILE`.",
      { param: "messages" },
    );
  }
  if (hasTools && !template.includes("tools")) {
    const reason = "The chat template of this model does not support tools. Leave `tools` out, or use another model.";
    throw new RequestError(400, reason, { param: "tools" });
  }
  const options: ChatOptions = {
    template,
    tools: hasTools && Array.isArray(body.tools) ? body.tools : null,
    addGenerationPrompt: fields.add_generation_prompt ?? !fields.continue_final_message,
    continueFinalMessage: fields.continue_final_message,
    extra: fields.chat_template_kwargs ?? {},
  };
  const messages = fields.messages.map((it, i) => readMessage(it, `messages[${i}]`, template));
  const text = render(service, messages, options);
  return encodeText(service, text, { param: "messages", addSpecialTokens: false });
}

type Given = Conversation["messages"][number];

function readMessage(given: Given, param: string, template: string): Message {
  const { role, content, tool_calls: calls, ...rest } = given;
  const hasCalls = calls != null && calls.length > 0;
  if (content == null && role !== "assistant") {
    const reason = `\`${param}.content\` is missing; a message of the role "${role}" needs one.`;
    throw new RequestError(400, reason, { param: `${param}.content` });
  }
  return {
    ...Object.fromEntries(Object.entries(rest).filter(([, value]) => value !== null)),
    // OpenAI's newer name for the same role; a template that does not know it would drop the message.
    role: role === "developer" && !template.includes("developer") ? "system" : role,
    content:
      typeof content === "string"
        ? content
        : (content ?? []).map((part, i) => textOf(part, `${param}.content[${i}]`)).join("\n"),
    ...(hasCalls ? { tool_calls: calls.map((it, i) => readCall(it, `${param}.tool_calls[${i}]`)) } : {}),
  };
}

function textOf(part: JsonObject, param: string): string {
  if (part.type === "text" && typeof part.text === "string") return part.text;
  throw new RequestError(400, `\`${param}\` is ${show(part)}; this model reads only parts of the type "text".`, {
    param,
  });
}

/** Templates write arguments as JSON themselves, so the text that OpenAI's clients send is parsed into an object. */
function readCall(given: z.infer<typeof call>, place: string): JsonObject {
  const { arguments: written } = given.function;
  if (typeof written !== "string") return given;
  const param = `${place}.function.arguments`;
  try {
    return { ...given, function: { ...given.function, arguments: written.trim() === "" ? {} : JSON.parse(written) } };
  } catch (error) {
    throw new RequestError(400, `\`${param}\` is ${show(written)}, which is not JSON: ${messageOf(error)}.`, {
      param,
      cause: error,
    });
  }
}

/** An error of the template is about the conversation; the message does not contain paths of this machine. */
function render({ tokenizer }: Service, messages: readonly Message[], options: ChatOptions): string {
  try {
    return renderChat(tokenizer, messages, options);
  } catch (error) {
    if (!(error instanceof UserError)) throw error;
    const { cause } = error;
    if (!(cause instanceof Error)) throw new RequestError(400, error.message, { param: "messages", cause: error });
    const verb = cause instanceof TemplateRaised ? "refuses" : "cannot be applied to";
    const message = `The model's chat template ${verb} this conversation: ${cause.message}`;
    throw new RequestError(400, message, { param: "messages", cause: error });
  }
}
