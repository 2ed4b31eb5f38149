import type { Call } from "./verb.ts";

/** The key between `serve` and its clients: TRAINYARD_API_KEY, or else OPENAI_API_KEY, which OpenAI's own clients send. */
export function apiKeyOf(env: Call["env"]): string | undefined {
  return env.TRAINYARD_API_KEY || env.OPENAI_API_KEY || undefined;
}
