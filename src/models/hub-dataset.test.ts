import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
import { commit, DatasetHub } from "../../test/dataset-hub.ts";
import { UserError } from "../util/errors.ts";
import { pathsIn, resolveDataset } from "./hub-dataset.ts";

const id = "someone/sums";
const rows = (text: string) => Buffer.from(`{"text": "${text}"}\n`);
const contents = {
  "README.md": Buffer.from("about"),
  "main/train a.jsonl": rows("train"),
  "main/test.jsonl": rows("test"),
  "other/train.jsonl": rows("other"),
};

let hub: DatasetHub;
let home: string;
const env = (more: Record<string, string> = {}) => ({ HF_ENDPOINT: hub.endpoint, HF_HOME: home, ...more });
const wanted = ["main/test.jsonl", "main/train a.jsonl"];
const choose = (paths: readonly string[]) => (wanted.every((path) => paths.includes(path)) ? wanted : null);

beforeEach(async () => {
  home = mkdtempSync(join(tmpdir(), "trainyard-hub-"));
  hub = new DatasetHub(id, contents);
  await hub.start();
});
afterEach(async () => {
  await hub.stop();
  rmSync(home, { recursive: true, force: true });
});

test("the chosen files arrive in Hugging Face's cache layout, and no others", async () => {
  const folder = await resolveDataset(id, choose, { env: env() });
  expect(folder).toBe(join(home, "hub", "datasets--someone--sums", "snapshots", commit));
  expect(await pathsIn(folder)).toEqual(wanted);
  expect(readFileSync(join(folder, "main", "train a.jsonl"))).toEqual(contents["main/train a.jsonl"]);
  expect(readFileSync(join(home, "hub", "datasets--someone--sums", "refs", "main"), "utf8")).toBe(commit);
});

test("cached files are used without a request when the hub is forbidden, and when it cannot be reached", async () => {
  const folder = await resolveDataset(id, choose, { env: env() });
  const asked = hub.seen.length;
  expect(await resolveDataset(id, choose, { env: env({ HF_HUB_OFFLINE: "1" }) })).toBe(folder);
  expect(await resolveDataset(`${id}@${commit}`, choose, { env: env() })).toBe(folder);
  expect(hub.seen).toHaveLength(asked);
  await hub.stop();
  expect(await resolveDataset(id, choose, { env: env() })).toBe(folder);
  await hub.start();
});

test("a cache that lacks a chosen file is not enough, and the message says where it is and what to do", async () => {
  await resolveDataset(id, () => ["main/test.jsonl"], { env: env() });
  const offline = resolveDataset(id, choose, { env: env({ HF_HUB_OFFLINE: "1" }) });
  await expect(offline).rejects.toThrow(/dataset someone\/sums is only in part in the cache .*--local_dataset_path\.$/);
  await hub.stop();
  const unreachable = resolveDataset("someone/else", choose, { env: env() });
  await expect(unreachable).rejects.toThrow(/is not in the cache .* cannot be reached \(ECONNREFUSED\)/);
  await hub.start();
});

test("mistakes give messages that say what to do", async () => {
  const cases: readonly (readonly [string, typeof choose, RegExp])[] = [
    ["someone/else", choose, /shows no dataset someone\/else\. Check the spelling/],
    ["sums", choose, /"sums" is no name of a dataset .* owner\/name\.$/],
    [id, () => null, /someone\/sums does not have the files .* It has README\.md, main\/train a\.jsonl, .*revision/],
  ];
  for (const [name, chooser, message] of cases) {
    const attempt = resolveDataset(name, chooser, { env: env() });
    await expect(attempt).rejects.toBeInstanceOf(UserError);
    await expect(attempt).rejects.toThrow(message);
  }
});
