/** `trainyard doctor`: what it finds on this machine, and what it says about machines that lack something. */
import { spawn } from "node:child_process";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, describe, expect, test } from "vitest";
import { disk, machineFindings } from "./doctor.ts";

const launcher = fileURLToPath(new URL("../../bin/trainyard.js", import.meta.url));
const folder = mkdtempSync(join(tmpdir(), "trainyard-doctor-"));
afterAll(() => rmSync(folder, { recursive: true }));

type Said = { readonly code: number | null; readonly stdout: string; readonly stderr: string; readonly ms: number };

function doctor(env: Record<string, string>, ...args: readonly string[]): Promise<Said> {
  const started = performance.now();
  const child = spawn(process.execPath, [launcher, "doctor", ...args], {
    cwd: folder,
    env: { ...process.env, ...env },
  });
  const said = { stdout: "", stderr: "" };
  child.stdout.on("data", (chunk) => (said.stdout += chunk));
  child.stderr.on("data", (chunk) => (said.stderr += chunk));
  return new Promise((done) => {
    child.on("close", (code) => done({ code, ...said, ms: performance.now() - started }));
  });
}

const levels = (stdout: string) =>
  Object.fromEntries([...stdout.matchAll(/^(ok|note|problem) +(\w+) /gm)].map(([, level, about]) => [about, level]));

/** A hub that answers, or one that accepts the connection and never answers. */
async function hub(isSilent: boolean): Promise<{ url: string; close(): void }> {
  const server = createServer((_, response) => {
    if (!isSilent) response.end();
  });
  await new Promise<void>((done) => server.listen(0, "127.0.0.1", done));
  const { port } = server.address() as AddressInfo; // it listens on a port
  return {
    url: `http://127.0.0.1:${port}`,
    close: () => {
      server.closeAllConnections();
      server.close();
    },
  };
}

test("on this machine there is a line for each check, and the exit code is 0", async () => {
  const { url, close } = await hub(false);
  mkdirSync(join(folder, "hub/models--owner--name"), { recursive: true });
  const { code, stdout, stderr } = await doctor({ HF_ENDPOINT: url, HF_HUB_CACHE: join(folder, "hub") });
  close();
  expect({ code, stderr }).toEqual({ code: 0, stderr: "" });
  expect(Object.keys(levels(stdout))).toEqual([
    "node",
    "cpu",
    "webgpu",
    "cuda",
    "memory",
    "cores",
    "disk",
    "python",
    "cache",
    "hub",
  ]);
  expect(levels(stdout)).toMatchObject({ node: "ok", cpu: "ok", cache: "ok", hub: "ok" });
  expect(stdout).toMatch(/^ok +cpu +runs programs \(onnxruntime-node \d/m);
  expect(stdout).toMatch(/^ok +cache +1 model of the hub in /m);
  expect(stdout).toMatch(/\n\nThis machine can train\./);
});

test("a hub that does not answer gets two seconds, and is no problem", async () => {
  const { url, close } = await hub(true);
  const { code, stdout, ms } = await doctor({ HF_ENDPOINT: url });
  close();
  expect(stdout).toMatch(
    /^note +hub +http:\/\/127\.0\.0\.1:\d+ does not answer within 2 seconds: name models by their folder/m,
  );
  expect(code).toBe(0);
  expect(ms).toBeGreaterThan(2000);
});

test("HF_HUB_OFFLINE keeps it from asking the hub", async () => {
  const { stdout } = await doctor({ HF_HUB_OFFLINE: "1", HF_ENDPOINT: "http://127.0.0.1:9" });
  expect(stdout).toMatch(/^note +hub +HF_HUB_OFFLINE is set, so http:\/\/127\.0\.0\.1:9 is not asked/m);
});

describe("one device by itself", () => {
  test("is tried and nothing else", async () => {
    const { code, stdout } = await doctor({}, "--device", "cpu");
    expect(stdout.trimEnd().split("\n")).toEqual([expect.stringMatching(/^ok +cpu +runs programs/)]);
    expect(code).toBe(0);
  });

  test.each([
    [["--device", "tpu"], /^`--device` is tpu; it should be one of cpu, webgpu, cuda\.\n$/],
    [["please"], /^`please` is one word too many/],
  ])("%j is one message and exit code 2", async (args, message) => {
    const { code, stdout, stderr } = await doctor({}, ...args);
    expect(stderr).toMatch(message);
    expect({ code, stdout }).toEqual({ code: 2, stdout: "" });
  });
});

describe("what a machine has", () => {
  const gigabyte = 2 ** 30;
  test.each([
    [
      "plenty",
      { memory: 16 * gigabyte, free: 12 * gigabyte },
      "ok",
      /16 GB, 12 GB of it free: .* about 773M parameters/,
    ],
    ["little that is free", { memory: 16 * gigabyte, free: 0.1 * gigabyte }, "note", /close other programs/],
    ["too little", { memory: 0.25 * gigabyte, free: 0.2 * gigabyte }, "problem", /256 MB.*512 MB at the least/],
  ])("of memory is %s", (_, given, level, text) => {
    const [memory] = machineFindings({ ...given, isLimited: false, cores: 2 });
    expect(memory).toEqual({ level, about: "memory", text: expect.stringMatching(text) });
  });

  test("is limited by its container", () => {
    const [memory] = machineFindings({ memory: 4 * gigabyte, isLimited: true, free: gigabyte, cores: 2 });
    expect(memory?.text).toMatch(/^4\.0 GB \(the container's limit\)/);
  });

  test("of cores is a note when there is only one", () => {
    const at = (cores: number) => machineFindings({ memory: 1e10, isLimited: false, free: 1e10, cores })[1]?.level;
    expect([at(1), at(2)]).toEqual(["note", "ok"]);
  });

  test("of disk is that of the first folder that exists", async () => {
    const [here, below] = [await disk(folder), await disk(join(folder, "not/there/yet"))];
    expect(below.level).toBe(here.level);
    expect(below.text).toContain(join(folder, "not/there/yet"));
  });

  test("of disk is a problem where no file can be written", async () => {
    writeFileSync(join(folder, "file"), "");
    const text = expect.stringMatching(/no file can be written to .* \(E\w+\)\. .*`trainer\.default_local_dir`/);
    expect(await disk(join(folder, "file/checkpoints"))).toEqual({ level: "problem", about: "disk", text });
  });
});
