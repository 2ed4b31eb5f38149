/**
 * `fetch` for answers that come in one piece and may take long: the built-in one gives up after five silent minutes,
 * whatever it is told. Only what the calls to servers need: a POST or GET with text, and the answer as a `Response`.
 */
import { request as plainRequest } from "node:http";
import { request as secureRequest } from "node:https";

export type PatientInit = {
  readonly method: "GET" | "POST";
  readonly headers: Readonly<Record<string, string>>;
  readonly body?: string | null;
  readonly signal: AbortSignal;
};

/** Like `fetch`: an answer of any status, or a TypeError with a cause where the connection fails. */
export async function patientFetch(
  url: string | URL,
  { method, headers, body, signal }: PatientInit,
): Promise<Response> {
  signal.throwIfAborted();
  const address = new URL(url);
  const request = address.protocol === "https:" ? secureRequest : plainRequest;
  return await new Promise((resolve, reject) => {
    const broken = (error: Error) => reject(signal.aborted ? signal.reason : new TypeError("fetch", { cause: error }));
    const sent = request(address, { method, headers, signal }, (answer) => {
      const chunks: Buffer[] = [];
      answer.on("data", (chunk: Buffer) => chunks.push(chunk));
      answer.on("error", broken);
      answer.on("end", () => {
        const { statusCode: status = 500 } = answer;
        const content = [204, 205, 304].includes(status) ? null : Buffer.concat(chunks);
        resolve(new Response(content, { status, headers: textHeaders(answer.headers) }));
      });
    });
    sent.on("error", broken);
    sent.setSocketKeepAlive(true, 30_000);
    sent.end(body ?? undefined);
  });
}

function textHeaders(headers: Readonly<Record<string, string | readonly string[] | undefined>>): [string, string][] {
  return Object.entries(headers).flatMap(([name, value]) =>
    typeof value === "string" ? [[name, value] as [string, string]] : [],
  );
}
