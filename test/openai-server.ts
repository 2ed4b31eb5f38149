/**
 * A small OpenAI-compatible server for tests: its answers depend on the prompt and the seed alone, and `disturb` may put
 * anything in their place. It listens on a free port of this machine.
 */
import { createHash } from "node:crypto";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";

/** A request body. */
export type Body = Readonly<Record<string, unknown>>;

/** Answers in the server's place. */
export type Disturbance = (response: ServerResponse) => void;

export type FakeOptions = {
  readonly models?: readonly string[];
  /** What to do instead of answering; `count` is the number of the request. */
  readonly disturb?: (body: Body, count: number) => Disturbance | null;
  /** Pause before each answer. */
  readonly delayMs?: number;
  /** How many samples one request may ask for. */
  readonly mostSamples?: number;
};

/** What the server says to a prompt (messages or token ids) with a seed: three words and an end. */
export function answerTo(prompt: unknown, seed: unknown): string[] {
  const digest = createHash("sha256")
    .update(JSON.stringify([prompt, seed]))
    .digest();
  return [0, 1, 2].map((i) => `${i === 0 ? "" : " "}w${digest[i]}`);
}

export class FakeServer {
  readonly requests: Body[] = [];
  readonly url: string;
  mostInFlight = 0;
  #inFlight = 0;
  readonly #close: () => Promise<void>;

  private constructor(url: string, close: () => Promise<void>) {
    this.url = url;
    this.#close = close;
  }

  static async open(options: FakeOptions = {}): Promise<FakeServer> {
    let fake: FakeServer | null = null;
    const server = createServer((request, response) => void fake?.answer(request, response, options));
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    const address = server.address();
    const port = typeof address === "object" && address !== null ? address.port : 0;
    fake = new FakeServer(`http://127.0.0.1:${port}/v1`, async () => {
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
    });
    return fake;
  }

  async answer(request: IncomingMessage, response: ServerResponse, options: FakeOptions): Promise<void> {
    const { models = ["m"], disturb, delayMs = 0 } = options;
    if (request.url === "/v1/models") return void json(response, 200, { data: models.map((id) => ({ id })) });
    let text = "";
    for await (const chunk of request) text += chunk;
    const body: Body = JSON.parse(text);
    this.requests.push({ ...body, path: request.url, authorization: request.headers.authorization });
    this.mostInFlight = Math.max(this.mostInFlight, ++this.#inFlight);
    try {
      if (delayMs > 0) await new Promise((resolve) => setTimeout(resolve, delayMs));
      const instead = disturb?.(body, this.requests.length) ?? null;
      if (instead !== null) return void instead(response);
      stream(response, body, request.url === "/v1/chat/completions", options.mostSamples ?? Number.POSITIVE_INFINITY);
    } finally {
      this.#inFlight--;
    }
  }

  async close(): Promise<void> {
    await this.#close();
  }
}

function stream(response: ServerResponse, body: Body, isChat: boolean, mostSamples: number): void {
  response.writeHead(200, { "content-type": "text/event-stream" });
  const n = Math.min(Number(body.n ?? 1), mostSamples);
  for (let index = 0; index < n; index++) {
    const words = answerTo(isChat ? body.messages : body.prompt, Number(body.seed ?? 0) + index);
    for (const [i, word] of words.entries()) {
      const ids =
        body.return_token_ids === true ? { token_ids: [100 + i], logprobs: { token_logprobs: [-1 - i] } } : {};
      send(response, {
        index,
        ...(isChat ? { delta: { content: word } } : { text: word, ...ids }),
        finish_reason: null,
      });
    }
    send(response, { index, ...(isChat ? { delta: {} } : { text: "" }), finish_reason: "stop" });
  }
  response.write(`data: ${JSON.stringify({ choices: [], usage: { completion_tokens: 3 * n } })}\n\n`);
  response.end("data: [DONE]\n\n");
}

function send(response: ServerResponse, choice: object): void {
  response.write(`data: ${JSON.stringify({ choices: [choice] })}\n\n`);
}

/** Answer with a JSON body. */
export function json(
  response: ServerResponse,
  status: number,
  body: unknown,
  headers: Record<string, string> = {},
): void {
  response.writeHead(status, { "content-type": "application/json", ...headers });
  response.end(JSON.stringify(body));
}
