/** `POST /tokenize` and `POST /detokenize`, as vLLM has them. */
import * as z from "zod";
import type { JsonObject } from "./body.ts";
import { flag, parseFields, text } from "./fields.ts";
import { conversationFields, encodeConversation } from "./messages.ts";
import { checkIds, encodeText } from "./prompts.ts";
import type { Reply } from "./reply.ts";
import { RequestError } from "./request-error.ts";
import type { Service } from "./service.ts";

const shared = { model: text.optional(), add_special_tokens: flag.optional(), return_token_strs: flag.default(false) };
const textSchema = z.object({ ...shared, prompt: text });
const chatSchema = z.object({ ...shared, ...conversationFields });
const idsSchema = z.object({ model: text.optional(), tokens: z.array(z.unknown(), "a list of token ids") });

/** The tokens of a text (`prompt`) or of a conversation (`messages`). */
export function tokenize(service: Service, body: JsonObject): Reply {
  const { ids, ignored, hasNames } = body.messages == null ? ofText(service, body) : ofChat(service, body);
  const names = hasNames ? { token_strs: [...ids].map((id) => service.tokenizer.pieceOf(id) ?? "") } : {};
  return {
    ignored,
    whole: async () => ({ count: ids.length, max_model_len: service.maxLength, tokens: [...ids], ...names }),
  };
}

type Tokens = { readonly ids: Int32Array; readonly ignored: readonly string[]; readonly hasNames: boolean };

function ofText(service: Service, body: JsonObject): Tokens {
  const { fields, ignored } = parseFields(textSchema, body);
  const addSpecialTokens = fields.add_special_tokens ?? true;
  const ids = encodeText(service, fields.prompt, { param: "prompt", addSpecialTokens });
  return { ids, ignored, hasNames: fields.return_token_strs };
}

function ofChat(service: Service, body: JsonObject): Tokens {
  const { fields, ignored } = parseFields(chatSchema, body);
  if (fields.add_special_tokens)
    throw new RequestError(
      400,
      "`add_special_tokens` is for texts: a chat template writes them itself. Leave it out.",
      {
        param: "add_special_tokens",
      },
    );
  const ids = encodeConversation(service, fields, { body, hasTools: (fields.tools?.length ?? 0) > 0 });
  return { ids, ignored, hasNames: fields.return_token_strs };
}

/** The text of token ids, special tokens included. */
export function detokenize(service: Service, body: JsonObject): Reply {
  const { fields, ignored } = parseFields(idsSchema, body);
  const ids = checkIds(service, fields.tokens, "tokens");
  return { ignored, whole: async () => ({ prompt: service.tokenizer.decode(ids) }) };
}
