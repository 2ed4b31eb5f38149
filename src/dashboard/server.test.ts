/** The server as a client meets it: what it answers, what it refuses, and that it leaves the folder as it is. */

import { mkdtemp, rm } from "node:fs/promises";
import { createServer, request } from "node:http";
import type { AddressInfo } from "node:net";
import { hostname, tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { writeRun } from "../../test/dashboard-yard.ts";
import { checksums } from "../../test/sandbox.ts";
import { UserError } from "../util/errors.ts";
import { setLevel } from "../util/log.ts";
import { decodeColumns } from "./page/wire.ts";
import { type RunningDashboard, startDashboard } from "./server.ts";

let root: string;
let dashboard: RunningDashboard;
beforeAll(async () => {
  setLevel("quiet");
  root = await mkdtemp(join(tmpdir(), "trainyard-dashboard-"));
  await writeRun(join(root, "a", "one"), { steps: 30, validateEvery: 5 });
  await writeRun(join(root, "two"), { steps: 12, total: 20, rolloutsEvery: 0 });
  dashboard = await startDashboard({ folder: root });
});
afterAll(async () => {
  setLevel("info");
  await dashboard.stop();
  await rm(root, { recursive: true });
});

const get = (path: string, init?: RequestInit) => fetch(dashboard.url + path, init);
const json = async (path: string) => await (await get(path)).json();
const one = `run=${encodeURIComponent("a/one")}`;

describe("the page", () => {
  test("and every file it names come from this server, with a type that a browser takes", async () => {
    const page = await get("/");
    const text = await page.text();
    const paths = [...text.matchAll(/(?:href|src)="([^"]+)"/g)].map(([, path]) => path!);
    expect(paths.length).toBeGreaterThan(10);
    const types = { js: "text/javascript", ts: "text/javascript", css: "text/css", svg: "image/svg+xml" };
    for (const path of paths) {
      const answer = await get(path);
      const type = answer.headers.get("content-type");
      expect([path, answer.status, type]).toEqual([
        path,
        200,
        expect.stringContaining(types[path.split(".").at(-1) as keyof typeof types]),
      ]);
    }
    expect(text).not.toMatch(/https?:/);
  });

  test("has modules without types and without tests", async () => {
    const text = await (await get("/page/main.ts")).text();
    expect(text).toContain("addEventListener");
    expect(text).not.toMatch(/import type|: RunList/);
    expect((await get("/page/page.test.ts")).status).toBe(404);
  });

  test("may load only its own files, by its content policy", async () => {
    for (const path of ["/", "/page/main.ts", "/api/runs", "/nothing", "/api/run?run=none"]) {
      const { headers } = await get(path);
      const policy = headers.get("content-security-policy") ?? "";
      expect(policy).toMatch(/^default-src 'none'; script-src 'self' 'sha256-[^']+'; style-src 'self';/);
      expect(policy).toMatch(/require-trusted-types-for 'script'/);
      expect(policy).not.toMatch(/unsafe|\*/);
      expect(headers.get("x-content-type-options")).toBe("nosniff");
    }
  });
});

/** Ask with a Host header of one's own, which fetch does not let one set. */
function statusFor(host: string): Promise<number> {
  return new Promise((resolve, reject) => {
    const asked = request(`${dashboard.url}/api/runs`, { headers: { host } }, (answer) => {
      answer.resume();
      resolve(answer.statusCode ?? 0);
    });
    asked.on("error", reject);
    asked.end();
  });
}

describe("requests", () => {
  test.each([
    ["evil.example", 421],
    ["evil.example:80", 421],
    ["127.0.0.1.evil.example", 421],
    ["localhost.evil.example", 421],
    ["localhost", 200],
    ["127.0.0.1:1", 200],
    ["[::1]:1", 200],
    ["192.168.1.7", 200],
    [`${hostname()}:1`, 200],
  ])("by the name %s get %i", async (host, status) => {
    expect(await statusFor(host)).toBe(status);
  });

  test.each(["POST", "PUT", "DELETE", "PATCH"])("that would change something (%s) get 405", async (method) => {
    expect((await get("/api/runs", { method })).status).toBe(405);
  });

  test.each([
    ["/api/run", 400, "`run` is missing"],
    ["/api/run?run=none", 404, "There is no run none in"],
    ["/api/run?run=..%2F..%2Fetc", 404, "There is no run"],
    ["/api/run?run=a", 404, "There is no run a"],
    [`/api/rollouts?${one}&kind=train&step=x`, 400, "`step` is x; it should be a whole number"],
    [`/api/rollouts?${one}&kind=train&step=999`, 404, "Step 999 has no train rollouts"],
    [`/api/columns?${one}&name=a&from=-1&version=0`, 400, "`from` is -1"],
    [`/api/validation/prompt?${one}&key=x`, 404, "not among the validation rollouts"],
    ["/..%2f..%2fpackage.json", 404, "There is no"],
    ["/page/../../server.ts", 404, "There is no"],
  ])("%s gets %i and says why", async (path, status, message) => {
    const answer = await get(path);
    const { error } = await answer.json();
    expect([answer.status, error]).toEqual([status, expect.stringContaining(message)]);
  });

  test("that are repeated get 304 while nothing has changed", async () => {
    for (const path of ["/", "/api/runs", `/api/run?${one}`, `/api/rollout-index?${one}`]) {
      const etag = (await get(path)).headers.get("etag") ?? "";
      const again = await get(path, { headers: { "if-none-match": etag } });
      expect([path, again.status, (await again.text()).length]).toEqual([path, 304, 0]);
    }
  });
});

test("the overview has every run with its state", async () => {
  const { runs } = await json("/api/runs");
  expect(runs).toMatchObject([
    { id: "a/one", name: "a/one", status: "finished", step: 30, total: 30 },
    { id: "two", status: "stopped", step: 12, total: 20 },
  ]);
});

test("columns are sent from a given row, and completely when they have changed", async () => {
  const { version, rows, metricCount } = await json(`/api/run?${one}`);
  const names = (await json(`/api/metrics?${one}`)).map(({ name }: { name: string }) => name);
  expect(names).toHaveLength(metricCount);
  const query = (from: number, at: number) =>
    `/api/columns?${one}&name=actor%2Flr&name=none&from=${from}&version=${at}`;
  const columns = async (path: string) => decodeColumns(await (await get(path)).arrayBuffer());
  const whole = await columns(query(0, version));
  expect([whole.from, whole.steps.length, [...whole.columns.keys()]]).toEqual([0, rows, ["actor/lr"]]);
  const rest = await columns(query(28, version));
  expect([rest.from, [...rest.steps]]).toEqual([28, [29, 30]]);
  expect([...rest.columns.get("actor/lr")!]).toEqual([...whole.columns.get("actor/lr")!.subarray(28)]);
  expect([...(await columns(query(rows, version))).steps]).toEqual([]);
  expect((await columns(query(28, version + 1))).from).toBe(0);
});

test("metrics come with their row of the metric table", async () => {
  const infos: { name: string }[] = await json(`/api/metrics?${one}`);
  expect(infos.find(({ name }) => name === "actor/entropy")).toMatchObject({
    unit: "nats",
    meaning: "Mean entropy of the policy over the response tokens.",
    worry: expect.stringContaining("stops exploring"),
  });
});

test("no file of the folder is changed by reading all of it", async () => {
  const before = await checksums(root);
  const paths = ["run", "metrics", "config", "rollout-index", "validation", "search"];
  for (const path of paths) expect((await get(`/api/${path}?${one}&text=answer`)).status).toBe(200);
  await get(`/api/rollouts?${one}&kind=val&step=5`);
  expect(await checksums(root)).toEqual(before);
});

test("a folder without runs and a port in use are refused with what to do", async () => {
  const other = createServer();
  await new Promise<void>((resolve) => other.listen(0, "127.0.0.1", resolve));
  const { port } = other.address() as AddressInfo;
  const inUse: unknown = await startDashboard({ folder: root, port }).catch((error: unknown) => error);
  expect(inUse).toBeInstanceOf(UserError);
  expect(String(inUse)).toMatch(`another program listens on port ${port} already. Choose another with --port`);
  other.close();
  const noRuns: unknown = await startDashboard({ folder: join(root, "a", "one", "none") }).catch(
    (error: unknown) => error,
  );
  expect(noRuns).toBeInstanceOf(UserError);
});
