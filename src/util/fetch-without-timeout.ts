/**
 * `fetch` for answers that come in one piece and may take long: the built-in `fetch` gives up after five minutes without
 * data, and no option changes that. It supports what calls to servers need: a GET or a POST with text, and the answer as
 * a `Response`.
 */
import { request as httpRequest } from "node:http";
import { request as httpsRequest } from "node:https";

export type FetchInit = {
  readonly method: "GET" | "POST";
  readonly headers: Readonly<Record<string, string>>;
  readonly body?: string | null;
  readonly signal: AbortSignal;
};

/** Like `fetch`: an answer with any status, or a TypeError with a cause if the connection fails. */
export async function fetchWithoutTimeout(
  url: string | URL,
  { method, headers, body, signal }: FetchInit,
): Promise<Response> {
  signal.throwIfAborted();
  const address = new URL(url);
  const request = address.protocol === "https:" ? httpsRequest : httpRequest;
  return await new Promise((resolve, reject) => {
    const fail = (error: Error) => reject(signal.aborted ? signal.reason : new TypeError("fetch", { cause: error }));
    const sent = request(address, { method, headers, signal }, (answer) => {
      const chunks: Buffer[] = [];
      answer.on("data", (chunk: Buffer) => chunks.push(chunk));
      answer.on("error", fail);
      answer.on("end", () => {
        const { statusCode: status = 500 } = answer;
        const content = [204, 205, 304].includes(status) ? null : Buffer.concat(chunks);
        resolve(new Response(content, { status, headers: textHeaders(answer.headers) }));
      });
    });
    sent.on("error", fail);
    sent.setSocketKeepAlive(true, 30_000);
    sent.end(body ?? undefined);
  });
}

function textHeaders(headers: Readonly<Record<string, string | readonly string[] | undefined>>): [string, string][] {
  return Object.entries(headers).flatMap(([name, value]) =>
    typeof value === "string" ? [[name, value] as [string, string]] : [],
  );
}
