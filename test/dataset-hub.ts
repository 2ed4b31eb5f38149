/** A hub on loopback with one dataset in it, for tests of what is downloaded and what is not. */
import { createHash } from "node:crypto";
import { createServer, type Server, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";

export const commit = "0123456789abcdef0123456789abcdef01234567";

export class DatasetHub {
  readonly id: string;
  files: Readonly<Record<string, Buffer>>;
  /** The paths that were asked for. */
  readonly seen: string[] = [];
  endpoint = "";
  #server: Server | null = null;

  constructor(id: string, files: Readonly<Record<string, Buffer>>) {
    this.id = id;
    this.files = files;
  }

  async start(): Promise<void> {
    const server = createServer((request, response) => {
      this.seen.push(request.url ?? "");
      this.#answer(request.url ?? "", response);
    });
    await new Promise<void>((done) => server.listen(0, "127.0.0.1", done));
    this.endpoint = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
    this.#server = server;
  }

  async stop(): Promise<void> {
    this.#server?.closeAllConnections();
    await new Promise((done) => this.#server?.close(done));
  }

  #answer(url: string, response: ServerResponse): void {
    const [path = ""] = url.split("?");
    const files = `/datasets/${this.id}/resolve/${commit}/`;
    const data = path.startsWith(files) ? this.files[decodeURIComponent(path.slice(files.length))] : undefined;
    if (path === `/api/datasets/${this.id}/revision/main`)
      json(response, { _id: "1", id: this.id, sha: commit, private: false, gated: false, lastModified: "2024-01-01" });
    else if (path.startsWith(`/api/datasets/${this.id}/tree/${commit}`)) json(response, this.#entries());
    else if (data !== undefined) response.writeHead(200, { "content-length": data.length }).end(data);
    else response.writeHead(404, { "x-error-code": "RepoNotFound" }).end();
  }

  #entries(): object[] {
    return Object.entries(this.files).map(([path, data]) => {
      const oid = createHash("sha1").update(`blob ${data.length}\0`).update(data).digest("hex");
      return { type: "file", path, size: data.length, oid };
    });
  }
}

function json(response: ServerResponse, value: unknown): void {
  response.writeHead(200, { "content-type": "application/json" }).end(JSON.stringify(value));
}
