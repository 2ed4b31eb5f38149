/** An HTTP server for tests that notes every call and answers from a table of paths; a path it does not have is a 404. */
import { once } from "node:events";
import { createServer } from "node:http";

export type Recorded = { readonly path: string; readonly body: unknown; readonly authorization?: string | undefined };

/** A body, or a status with a body; a function is asked each time. */
export type Answer =
  | { readonly status?: number; readonly body: unknown }
  | ((body: unknown) => { readonly status?: number; readonly body: unknown } | Promise<{ readonly body: unknown }>);

export class CallRecorder {
  readonly calls: Recorded[] = [];
  readonly url: string;
  readonly #close: () => Promise<void>;

  private constructor(url: string, close: () => Promise<void>) {
    this.url = url;
    this.#close = close;
  }

  /** `answers` are by path with its query. */
  static async open(answers: Readonly<Record<string, Answer>>): Promise<CallRecorder> {
    let recorder: CallRecorder | null = null;
    const server = createServer(async (request, response) => {
      let text = "";
      for await (const chunk of request) text += chunk;
      const { url: path = "", headers } = request;
      const body: unknown = text === "" ? undefined : JSON.parse(text);
      recorder?.calls.push({ path, body, authorization: headers.authorization });
      const found = answers[path];
      const answer = found === undefined ? { status: 404, body: { detail: "Not Found" } } : found;
      const made: { readonly status?: number; readonly body: unknown } =
        typeof answer === "function" ? await answer(body) : answer;
      response.writeHead(made.status ?? 200, { "content-type": "application/json" });
      response.end(JSON.stringify(made.body));
    });
    await once(server.listen(0, "127.0.0.1"), "listening");
    const address = server.address();
    const port = typeof address === "object" ? address?.port : 0;
    recorder = new CallRecorder(`http://127.0.0.1:${port}`, async () => {
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
    });
    return recorder;
  }

  async close(): Promise<void> {
    await this.#close();
  }
}
