import { execFileSync } from "node:child_process";
import { createHash } from "node:crypto";
import { lstatSync, readdirSync, readFileSync, readlinkSync } from "node:fs";
import { mkdir, mkdtemp, rm, writeFile } from "node:fs/promises";
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { UserError } from "../util/errors.ts";
import { mirrorTo } from "../util/log.ts";
import { type DownloadProgress, resolveModel } from "./hub.ts";

const id = "someone/tiny";
const commit = "0123456789abcdef0123456789abcdef01234567";
const weights = Buffer.from(Array.from({ length: 300_000 }, (_, i) => (i * 7919) % 251));
const contents: Record<string, Buffer> = {
  "config.json": Buffer.from('{"model_type": "llama"}'),
  "tokenizer.json": Buffer.from('{"model": {}}'),
  "tokenizer_config.json": Buffer.from("{}"),
  "chat_template.jinja": Buffer.from("{{ 1 }}"),
  "README.md": Buffer.from("not needed"),
  "consolidated.safetensors": Buffer.from("the same weights in another form"),
  "pytorch_model.bin": Buffer.from("not needed"),
  "model.safetensors": weights,
};
const sha256 = (data: Buffer) => createHash("sha256").update(data).digest("hex");
const gitSha1 = (data: Buffer) => createHash("sha1").update(`blob ${data.length}\0`).update(data).digest("hex");
const isLfs = (name: string) => /\.(safetensors|bin)$/.test(name);

/** A hub and the storage it sends large files to, on two ports; `fault` may take a request over. */
class Hub {
  files: Record<string, Buffer> = { ...contents };
  readonly seen: { url: string; host: "hub" | "storage"; range: string | undefined; token: string | undefined }[] = [];
  fault: (request: { url: string; host: string }, response: ServerResponse) => boolean = () => false;
  endpoint = "";
  readonly #servers: Server[] = [];

  async start(): Promise<void> {
    const storage = await this.#listen("storage", (url, request, response) => {
      const name = Object.keys(this.files).find((file) => url.endsWith(sha256(contents[file] ?? this.files[file]!)));
      send(request, response, this.files[name!]!);
    });
    this.endpoint = await this.#listen("hub", (url, request, response) =>
      this.#answer(url, request, response, storage),
    );
  }

  #answer(url: string, request: IncomingMessage, response: ServerResponse, storage: string): void {
    const prefix = `/${id}/resolve/${commit}/`;
    if (url.startsWith(`/api/models/${id}/revision/`)) {
      const revision = decodeURIComponent(url.split("?")[0]!.split("/").at(-1)!);
      const info = { _id: "1", id, sha: commit, private: false, gated: false, lastModified: "2024-01-01" };
      if (["main", "v1", commit].includes(revision)) json(response, info);
      else deny(response, 404, "RevisionNotFound");
    } else if (url.startsWith(`/api/models/${id}/tree/${commit}`)) {
      json(response, [...this.#entries(), { type: "directory", path: "onnx", size: 0, oid: commit }]);
    } else if (url.startsWith(prefix)) {
      this.#resolve(decodeURIComponent(url.slice(prefix.length)), request, response, storage);
    } else deny(response, 401, "RepoNotFound");
  }

  /** What the hub announces: the sound file, whatever it then sends. */
  #entries(): object[] {
    return Object.entries(this.files).map(([path, sent]) => {
      const data = contents[path] ?? sent;
      const lfs = { oid: sha256(data), size: data.length, pointerSize: 130 };
      return { type: "file", path, size: data.length, oid: gitSha1(data), ...(isLfs(path) ? { lfs } : {}) };
    });
  }

  #resolve(name: string, request: IncomingMessage, response: ServerResponse, storage: string): void {
    const data = this.files[name];
    if (data === undefined) {
      deny(response, 404, "EntryNotFound");
      return;
    }
    const etag = isLfs(name) ? sha256(contents[name] ?? data) : gitSha1(data);
    response.setHeader("x-repo-commit", commit);
    response.setHeader("etag", `"${etag}"`);
    if (isLfs(name)) response.writeHead(302, { location: `${storage}/${etag}`, "x-linked-etag": `"${etag}"` }).end();
    else send(request, response, data);
  }

  async #listen(
    host: "hub" | "storage",
    answer: (url: string, request: IncomingMessage, response: ServerResponse) => void,
  ) {
    const server = createServer((request, response) => {
      const { range, authorization: token } = request.headers;
      this.seen.push({ url: request.url!, host, range, token });
      if (!this.fault({ url: request.url!, host }, response)) answer(request.url!, request, response);
    });
    this.#servers.push(server);
    await new Promise<void>((done) => server.listen(0, "127.0.0.1", done));
    return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  }

  async stop(): Promise<void> {
    for (const server of this.#servers) {
      server.closeAllConnections();
      await new Promise((done) => server.close(done));
    }
  }
}

function send(request: IncomingMessage, response: ServerResponse, data: Buffer): void {
  const start = Number(/^bytes=(\d+)-/.exec(request.headers.range ?? "")?.[1] ?? 0);
  if (start >= data.length && start > 0) {
    response.writeHead(416).end();
    return;
  }
  const head = { "content-length": data.length - start, "accept-ranges": "bytes" };
  if (request.headers.range === undefined) response.writeHead(200, head);
  else response.writeHead(206, { ...head, "content-range": `bytes ${start}-${data.length - 1}/${data.length}` });
  response.end(data.subarray(start));
}

function json(response: ServerResponse, value: unknown): void {
  response.writeHead(200, { "content-type": "application/json" }).end(JSON.stringify(value));
}

function deny(response: ServerResponse, status: number, code: string): void {
  response.writeHead(status, { "content-type": "application/json", "x-error-code": code }).end('{"error":"no"}');
}

/** Send the first `bytes` of the weights, then break the connection. */
function breakAfter(response: ServerResponse, bytes: number, from = 0): void {
  const part = weights.subarray(from, from + bytes);
  if (from === 0) response.writeHead(200, { "content-length": weights.length });
  else response.writeHead(206, { "content-range": `bytes ${from}-${weights.length - 1}/${weights.length}` });
  response.write(part, () => setTimeout(() => response.destroy(), 20));
}

let hub: Hub;
let home: string;
let env: Record<string, string | undefined>;
beforeEach(async () => {
  hub = new Hub();
  await hub.start();
  home = await mkdtemp(join(tmpdir(), "hub-"));
  env = { HF_HOME: home, HF_ENDPOINT: hub.endpoint, HOME: home };
});
afterEach(async () => {
  await hub.stop();
  await rm(home, { recursive: true });
});

const repoFolder = () => join(home, "hub/models--someone--tiny");
const isFull = (folder: string) => readFileSync(join(folder, "model.safetensors")).equals(weights);
const partsLeft = () => readdirSync(join(repoFolder(), "blobs")).filter((name) => name.endsWith(".incomplete"));

test("VERL_USE_MODELSCOPE is named where a model comes from the hub, and nowhere else", async () => {
  const lines: string[] = [];
  const stop = mirrorTo((line) => lines.push(line));
  try {
    const asked = { ...env, VERL_USE_MODELSCOPE: "True" };
    const folder = await resolveModel(id, { env: asked });
    expect(lines.filter((line) => /VERL_USE_MODELSCOPE has no effect.*HF_ENDPOINT/.test(line))).toHaveLength(1);
    await resolveModel(folder, { env: asked });
    await resolveModel(id, { env: { ...env, VERL_USE_MODELSCOPE: "False" } });
    expect(lines.filter((line) => line.includes("MODELSCOPE"))).toHaveLength(1);
  } finally {
    stop();
  }
});

describe("a folder", () => {
  test("is returned as it is, with ~ for the home folder", async () => {
    await mkdir(join(home, "models/x"), { recursive: true });
    expect(await resolveModel(join(home, "models/x"), { env })).toBe(join(home, "models/x"));
    expect(await resolveModel("~/models/x", { env })).toBe(join(home, "models/x"));
    expect(hub.seen).toEqual([]);
  });

  test.each(["./nothing", "/nothing/here", "a/b/c", "gpt2", "../x", "a/..", "owner/", ""])(
    'that is not there and no name of a model ("%s") is an error for the user',
    async (path) => {
      await expect(resolveModel(path, { env })).rejects.toBeInstanceOf(UserError);
      expect(hub.seen).toEqual([]);
    },
  );

  test("is asked for when the path is a file", async () => {
    await writeFile(join(home, "model.safetensors"), "x");
    await expect(resolveModel(join(home, "model.safetensors"), { env })).rejects.toThrow(/is a file\. Give the folder/);
  });
});

describe("a model of the hub", () => {
  test("is stored in Hugging Face's cache layout, and only the files that are needed", async () => {
    const folder = await resolveModel(id, { env });
    expect(folder).toBe(join(repoFolder(), "snapshots", commit));
    expect(readdirSync(folder).sort()).toEqual([
      "chat_template.jinja",
      "config.json",
      "model.safetensors",
      "tokenizer.json",
      "tokenizer_config.json",
    ]);
    expect(readFileSync(join(repoFolder(), "refs/main"), "utf8")).toBe(commit);
    expect(readlinkSync(join(folder, "model.safetensors"))).toBe(join("../../blobs", sha256(weights)));
    expect(readlinkSync(join(folder, "config.json"))).toBe(join("../../blobs", gitSha1(contents["config.json"]!)));
    expect(isFull(folder)).toBe(true);
  });

  test("is not downloaded twice, and for a commit the hub is not asked", async () => {
    await resolveModel(`${id}@v1`, { env });
    expect(readFileSync(join(repoFolder(), "refs/v1"), "utf8")).toBe(commit);
    hub.seen.length = 0;
    await resolveModel(id, { env });
    expect(hub.seen.filter(({ url }) => !url.startsWith("/api/"))).toEqual([]);
    hub.seen.length = 0;
    await resolveModel(`${id}@${commit}`, { env });
    expect(hub.seen).toEqual([]);
  });

  test("in shards: those of the index, and no other weights", async () => {
    const shards = { "model-00001-of-00002.safetensors": "one", "model-00002-of-00002.safetensors": "two" };
    const index = { weight_map: { a: "model-00001-of-00002.safetensors", b: "model-00002-of-00002.safetensors" } };
    hub.files = Object.fromEntries(
      Object.entries({ ...shards, "model.safetensors.index.json": JSON.stringify(index), "x.safetensors": "x" }).map(
        ([name, text]) => [name, Buffer.from(text)],
      ),
    );
    hub.files["config.json"] = contents["config.json"]!;
    const folder = await resolveModel(id, { env });
    expect(readdirSync(folder).sort()).toEqual(
      ["config.json", ...Object.keys(shards), "model.safetensors.index.json"].sort(),
    );
    delete hub.files["model-00002-of-00002.safetensors"];
    await rm(join(repoFolder(), "snapshots"), { recursive: true });
    await expect(resolveModel(id, { env })).rejects.toThrow(/lacks model-00002-of-00002\.safetensors/);
  });

  test("without safetensors is an error that says so", async () => {
    hub.files = { "config.json": contents["config.json"]!, "pytorch_model.bin": Buffer.from("x") };
    await expect(resolveModel(id, { env })).rejects.toThrow(/has no \*\.safetensors/);
  });

  test("reports bytes that grow to the total", async () => {
    const progress: DownloadProgress[] = [];
    await resolveModel(id, { env, onProgress: (each) => progress.push(each) });
    const done = progress.map(({ doneBytes }) => doneBytes);
    expect(done).toEqual(done.toSorted((a, b) => a - b));
    const last = progress.at(-1)!;
    expect(last.file).toBe("model.safetensors");
    expect(last.doneBytes).toBe(last.totalBytes);
    expect(last.totalBytes).toBeGreaterThan(weights.length);
  });
});

describe("a download that breaks off", () => {
  test("continues by itself from where it stopped", async () => {
    let times = 0;
    hub.fault = ({ host }, response) => {
      if (host !== "storage" || times++ > 0) return false;
      breakAfter(response, 100_000);
      return true;
    };
    expect(isFull(await resolveModel(id, { env }))).toBe(true);
    expect(hub.seen.filter(({ host }) => host === "storage").map(({ range }) => range)).toEqual([
      undefined,
      "bytes=100000-",
    ]);
    expect(partsLeft()).toEqual([]);
  });

  test("continues in the next process from the part that an earlier one left", async () => {
    const abort = new AbortController();
    hub.fault = ({ host }, response) => {
      if (host !== "storage") return false;
      response.writeHead(200, { "content-length": weights.length });
      response.write(weights.subarray(0, 123_456)); // and then no more
      return true;
    };
    const onProgress = ({ file, doneBytes }: DownloadProgress) => {
      if (file === "model.safetensors" && doneBytes > 123_456) abort.abort();
    };
    await expect(resolveModel(id, { env, signal: abort.signal, onProgress })).rejects.toThrow(/abort/);
    expect(partsLeft()).toEqual([`${sha256(weights)}.incomplete`]);
    expect(readdirSync(repoFolder())).not.toContain("refs");

    hub.fault = () => false;
    hub.seen.length = 0;
    expect(isFull(await resolveModel(id, { env }))).toBe(true);
    expect(hub.seen.filter(({ host }) => host === "storage").map(({ range }) => range)).toEqual(["bytes=123456-"]);
  });

  test("starts again if the server does not support ranges", async () => {
    await mkdir(join(repoFolder(), "blobs"), { recursive: true });
    await writeFile(join(repoFolder(), "blobs", `${sha256(weights)}.incomplete`), weights.subarray(0, 1000));
    hub.fault = ({ host }, response) => {
      if (host === "storage") response.writeHead(200, { "content-length": weights.length }).end(weights);
      return host === "storage";
    };
    expect(isFull(await resolveModel(id, { env }))).toBe(true);
  });

  test("again and again is an error that says how far it got, and keeps that part", async () => {
    hub.fault = ({ host }, response) => {
      const have = Number(/\d+/.exec(hub.seen.at(-1)!.range ?? "0")![0]);
      if (host === "storage") breakAfter(response, have === 0 ? 150_000 : 0, have);
      return host === "storage";
    };
    await expect(resolveModel(id, { env })).rejects.toThrow(
      /model\.safetensors of someone\/tiny broke off after 146 KB of 293 KB/,
    );
    expect(lstatSync(join(repoFolder(), "blobs", partsLeft()[0]!)).size).toBe(150_000);
  });
});

describe("a file that is not what the hub announced", () => {
  test.each([
    [
      "model.safetensors",
      "one byte changed",
      (data: Buffer) => Buffer.concat([data.subarray(0, -1), Buffer.from("!")]),
    ],
    ["tokenizer.json", "one byte changed", (data: Buffer) => Buffer.concat([data.subarray(0, -1), Buffer.from("!")])],
    ["model.safetensors", "too long", (data: Buffer) => Buffer.concat([data, data])],
    ["model.safetensors", "too short", (data: Buffer) => data.subarray(0, -5)],
  ])("%s, %s, is not taken for the model", async (name, _, damage) => {
    hub.files[name] = damage(contents[name]!);
    await expect(resolveModel(id, { env })).rejects.toBeInstanceOf(UserError);
    expect(readdirSync(repoFolder())).not.toContain("refs");
    await expect(resolveModel(id, { env: { ...env, HF_HUB_OFFLINE: "1" } })).rejects.toThrow(/not in the cache/);
    hub.files[name] = contents[name]!;
    expect(isFull(await resolveModel(id, { env }))).toBe(true);
  });
});

describe("offline", () => {
  test("a cached model is found without a request", async () => {
    const folder = await resolveModel(id, { env });
    hub.seen.length = 0;
    expect(await resolveModel(id, { env: { ...env, HF_HUB_OFFLINE: "1" } })).toBe(folder);
    expect(hub.seen).toEqual([]);
  });

  test("a model that is not cached, or only in part, is an error that says what to do", async () => {
    const offline = { ...env, HF_HUB_OFFLINE: "true" };
    await expect(resolveModel(id, { env: offline })).rejects.toThrow(
      /is not in the cache .*HF_HUB_OFFLINE is set.*Unset it/,
    );
    const folder = await resolveModel(id, { env });
    await rm(join(repoFolder(), "blobs", sha256(weights)));
    await expect(resolveModel(id, { env: offline })).rejects.toThrow(/only in part in the cache/);
    expect(await resolveModel(id, { env })).toBe(folder);
    expect(isFull(folder)).toBe(true);
  });

  test("if the hub cannot be reached, the cached model is used", async () => {
    const folder = await resolveModel(id, { env });
    const away = { ...env, HF_ENDPOINT: "http://127.0.0.1:9" };
    expect(await resolveModel(id, { env: away })).toBe(folder);
    await expect(resolveModel("someone/other", { env: away })).rejects.toThrow(/127\.0\.0\.1:9 cannot be reached/);
  });
});

describe("the cache and the token", () => {
  test.each([
    ["HF_HUB_CACHE", (at: string) => ({ HF_HUB_CACHE: join(at, "own") }), "own"],
    ["HF_HOME", (at: string) => ({ HF_HOME: at }), "hub"],
    ["XDG_CACHE_HOME", (at: string) => ({ XDG_CACHE_HOME: at }), "huggingface/hub"],
    ["the home folder", (at: string) => ({ HOME: at }), ".cache/huggingface/hub"],
  ])("are where %s says", async (_, variables, folder) => {
    const found = await resolveModel(id, { env: { HF_ENDPOINT: hub.endpoint, HOME: home, ...variables(home) } });
    expect(found).toBe(join(home, folder, "models--someone--tiny/snapshots", commit));
  });

  test("HF_TOKEN goes to the hub and not to the storage it redirects to", async () => {
    await resolveModel(id, { env: { ...env, HF_TOKEN: "secret" } });
    const tokens = (host: string) => new Set(hub.seen.filter((each) => each.host === host).map(({ token }) => token));
    expect(tokens("hub")).toEqual(new Set(["Bearer secret"]));
    expect(tokens("storage")).toEqual(new Set([undefined]));
  });

  test("without HF_TOKEN the token file is read", async () => {
    await writeFile(join(home, "token"), "from-file\n");
    await resolveModel(id, { env });
    expect(hub.seen[0]!.token).toBe("Bearer from-file");
  });
});

describe("a refusal of the hub gives a message that says what to do", () => {
  test.each([
    [401, "GatedRepo", undefined, /is gated.*Accept them at .*someone\/tiny.*set HF_TOKEN/],
    [403, "GatedRepo", "x", /is gated.*check that HF_TOKEN belongs/],
    [401, "RepoNotFound", undefined, /no folder someone\/tiny here.*shows no model.*set HF_TOKEN/],
    [404, "RepoNotFound", "x", /shows no model someone\/tiny.*check that HF_TOKEN may read it/],
  ])("%i %s with the token %s", async (status, code, token, message) => {
    hub.fault = (_, response) => {
      deny(response, status, code);
      return true;
    };
    const attempt = resolveModel(id, { env: { ...env, HF_TOKEN: token } });
    await expect(attempt).rejects.toBeInstanceOf(UserError);
    await expect(attempt).rejects.toThrow(message);
  });

  test("a revision that is not there", async () => {
    await expect(resolveModel(`${id}@v9`, { env })).rejects.toThrow(/has no revision "v9"/);
  });

  test("a folder that cannot be written", async () => {
    await writeFile(join(home, "file"), "");
    const attempt = resolveModel(id, { env: { ...env, HF_HUB_CACHE: join(home, "file") } });
    await expect(attempt).rejects.toThrow(/cannot be written: a part of the path is a file/);
  });
});

const python = process.env.TRAINYARD_TEST_PYTHON;
test.skipIf(!python)(
  "Python's huggingface_hub finds the model in the cache (skipped unless TRAINYARD_TEST_PYTHON names a Python that has it)",
  async () => {
    const folder = await resolveModel(id, { env });
    const code = `from huggingface_hub import snapshot_download, hf_hub_download
print(snapshot_download("${id}", local_files_only=True))
print(hf_hub_download("${id}", "model.safetensors", local_files_only=True))`;
    const lines = execFileSync(python!, ["-c", code], {
      env: { ...process.env, HF_HOME: home, HF_HUB_CACHE: join(home, "hub") },
    });
    expect(lines.toString().trim().split("\n")).toEqual([folder, join(folder, "model.safetensors")]);
  },
);
