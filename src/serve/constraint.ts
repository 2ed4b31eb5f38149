/**
 * What the output of a request must look like: the grammar of `response_format` and of calls that are required.
 *
 * Grammars are kept for later requests with the same schemas, with the tokens that they computed.
 */
import { type Grammar, grammarOf } from "../text/grammar/grammar.ts";
import { schemaRule } from "../text/grammar/json-schema.ts";
import { anyObject } from "../text/grammar/json-text.ts";
import { choice, type Rule } from "../text/grammar/rule.ts";
import { tokenTable } from "../text/grammar/token-table.ts";
import type { Tokenizer } from "../text/tokenizer.ts";
import { callsRule } from "../text/tool-calls.ts";
import { UserError } from "../util/errors.ts";
import { RequestError } from "./request-error.ts";
import type { Service } from "./service.ts";

/** `json_object` without a schema, `json_schema` with one. */
export type OutputFormat =
  | { readonly type: "text" | "json_object" }
  | { readonly type: "json_schema"; readonly schema: unknown };

/** Whether the model may or must call tools; `name` is the only one it must call. */
export type ToolChoice = "none" | "auto" | "required" | { readonly name: string };

type Tool = { readonly function: { readonly name: string; readonly parameters?: unknown } };

export type Wanted = {
  readonly format: OutputFormat;
  readonly tools: readonly Tool[];
  readonly choice: ToolChoice;
  /** Several calls are possible where any tool may be called. */
  readonly isParallel: boolean;
};

const grammars = new WeakMap<Tokenizer, Map<string, Grammar>>();
const MOST_GRAMMARS = 32;

/** The grammar of an output; null if any text is possible. */
export function constraintOf(service: Service, wanted: Wanted): Grammar | null {
  const { format, choice: toolChoice } = wanted;
  if (format.type === "text" && (toolChoice === "auto" || toolChoice === "none")) return null;
  const { tokenizer, model } = service;
  const kept = grammars.get(tokenizer) ?? new Map<string, Grammar>();
  grammars.set(tokenizer, kept);
  const key = JSON.stringify(wanted);
  const grammar = kept.get(key) ?? makeGrammar(wanted, tokenizer, model.config.vocabSize);
  kept.delete(key); // the one that was used last becomes the last one
  kept.set(key, grammar);
  for (const old of kept.keys()) if (kept.size > MOST_GRAMMARS) kept.delete(old);
  return grammar;
}

function makeGrammar(wanted: Wanted, tokenizer: Tokenizer, vocabSize: number): Grammar {
  const isFormat = wanted.choice === "none" || wanted.choice === "auto";
  try {
    return grammarOf(ruleOf(wanted), tokenTable(tokenizer, vocabSize));
  } catch (error) {
    if (!(error instanceof UserError)) throw error;
    const param = isFormat && !error.message.startsWith("`tools") ? "response_format" : "tools";
    throw new RequestError(400, error.message, { param, cause: error });
  }
}

/** A forced call is one call; with a format, a call is possible instead of the text if tools may be called. */
function ruleOf({ format, tools, choice: toolChoice, isParallel }: Wanted): Rule {
  if (toolChoice === "none") return formatRule(format);
  const most = isParallel && typeof toolChoice === "string" ? Number.POSITIVE_INFINITY : 1;
  const callable = tools.flatMap(({ function: { name, parameters } }, i) => {
    if (typeof toolChoice === "object" && toolChoice.name !== name) return [];
    const schema = parameters ?? { type: "object", properties: {} };
    return [{ name, arguments: schemaRule(schema, `tools[${i}].function.parameters`) }];
  });
  const calls = callsRule(callable, most);
  return toolChoice === "auto" ? choice([calls, formatRule(format)]) : calls;
}

function formatRule(format: OutputFormat): Rule {
  return format.type === "json_schema" ? schemaRule(format.schema, "response_format.json_schema.schema") : anyObject;
}
