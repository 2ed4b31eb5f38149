/** `trainyard dashboard` as a program: its address, its end, and one message for each mistake. */
import { spawn } from "node:child_process";
import { mkdirSync, mkdtempSync, rmSync } from "node:fs";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { setLevel } from "../src/util/log.ts";
import { writeRun } from "./dashboard-yard.ts";

const launcher = fileURLToPath(new URL("../bin/trainyard.js", import.meta.url));
const folder = mkdtempSync(join(tmpdir(), "trainyard-dashboard-cli-"));
beforeAll(async () => {
  setLevel("quiet");
  mkdirSync(join(folder, "empty"));
  await writeRun(join(folder, "checkpoints", "project", "run"), { steps: 3 });
});
afterAll(() => {
  setLevel("info");
  rmSync(folder, { recursive: true });
});

function start(...args: readonly string[]) {
  const child = spawn(process.execPath, [launcher, "dashboard", ...args], { cwd: folder });
  const said = { stdout: "", stderr: "" };
  child.stdout.on("data", (chunk) => {
    said.stdout += chunk;
  });
  child.stderr.on("data", (chunk) => {
    said.stderr += chunk;
  });
  const ended = new Promise<number | null>((resolve) => child.once("close", resolve));
  return { child, said, ended: ended.then((code) => ({ code, ...said })) };
}

for (const signal of ["SIGINT", "SIGTERM"] as const) {
  test(`it prints its address, answers there, and ends on ${signal} with 0 although a browser is connected`, async () => {
    const { child, said, ended } = start("--port", "0");
    while (!said.stdout.includes("\n")) await new Promise((resolve) => setTimeout(resolve, 5));
    const [, url = ""] = /^The dashboard of checkpoints is at (http:\/\/127\.0\.0\.1:\d+)\n/.exec(said.stdout) ?? [];
    const { runs } = await (await fetch(`${url}/api/runs`)).json();
    expect(runs).toMatchObject([{ id: "project/run", step: 3 }]);
    expect(await (await fetch(url)).text()).toMatch(/^<!doctype html>/);
    child.kill(signal);
    expect(await ended).toMatchObject({ code: 0, stderr: "" });
  });
}

describe("a mistake is one message and exit code 2", () => {
  const taken = createServer();
  beforeAll(() => new Promise<void>((resolve) => void taken.listen(0, "127.0.0.1", resolve)));
  afterAll(() => void taken.close());
  const port = () => String((taken.address() as AddressInfo).port);

  const cases: readonly [what: string, args: () => readonly string[], message: RegExp][] = [
    ["a folder that is not there", () => ["nothing"], /^nothing does not exist\. Name a run folder/],
    ["a folder without runs", () => ["empty"], /^empty is not a run folder and contains none/],
    ["two folders", () => ["a", "b"], /^Both a and b are folders\./],
    ["a port in use", () => ["--port", port()], /another program listens on port \d+ already\. Choose another/],
    [
      "a port that is none",
      () => ["--port", "70000"],
      /`--port` is "70000"; it should be a whole number from 0 to 65535/,
    ],
    ["a host that is not this machine's", () => ["--port", "0", "--host", "203.0.113.7"], /has no such address/],
    ["an unknown option", () => ["--prot", "1"], /`--prot` is no option\. Did you mean --port\?/],
  ];
  for (const [what, args, message] of cases) {
    test(what, async () => {
      const { code, stdout, stderr } = await start(...args()).ended;
      expect(stderr.trimEnd()).toMatch(message);
      expect(stderr.trimEnd().split("\n")).toHaveLength(1);
      expect({ code, stdout }).toEqual({ code: 2, stdout: "" });
    });
  }
});

test("help is there", async () => {
  const { code, stdout } = await start("--help").ended;
  expect(stdout).toMatch(/Usage: trainyard dashboard \[RUN\] \[options\]/);
  expect(code).toBe(0);
});
