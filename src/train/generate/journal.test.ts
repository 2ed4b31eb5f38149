import { mkdtempSync, rmSync } from "node:fs";
import { appendFile, readFile, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, expect, test } from "vitest";
import { Journal } from "./journal.ts";

const folder = mkdtempSync(join(tmpdir(), "trainyard-journal-"));
afterAll(() => rmSync(folder, { recursive: true }));

const settings = { "rollout.seed": 1, "rollout.top_p": 0.7, "model.tokenizer_path": null };
const entry = (key: string) => ({ key, responses: [`answer\nto ${key}`, ""], tokens: 3, cut: 1 });

async function filled(name: string): Promise<string> {
  const path = join(folder, name);
  await using journal = await Journal.open(path, settings);
  await Promise.all(["a", "b", "c"].map((key) => journal.append(entry(key))));
  return path;
}

test("what was appended, also at the same time, is read when it is opened again", async () => {
  const path = await filled("again.jsonl");
  await using journal = await Journal.open(path, settings);
  expect([...journal.entries.values()]).toEqual(["a", "b", "c"].map(entry));
});

test("cut off anywhere, it keeps the complete lines and can be appended to", async () => {
  const bytes = await readFile(await filled("whole.jsonl"));
  const header = bytes.indexOf(10) + 1;
  for (let end = 0; end <= bytes.length; end += 7) {
    const path = join(folder, `cut-${end}.jsonl`);
    await writeFile(path, bytes.subarray(0, end));
    const before = bytes.subarray(0, end).toString().split("\n").length - 2;
    {
      await using journal = await Journal.open(path, settings);
      expect(journal.entries.size).toBe(end < header ? 0 : before);
      await journal.append(entry("z"));
    }
    await using journal = await Journal.open(path, settings);
    expect([...journal.entries.keys()]).toEqual([..."abc".slice(0, Math.max(0, before)), "z"]);
  }
});

test("a journal of other settings is refused, with the names and values that differ", async () => {
  const path = await filled("other.jsonl");
  const opening = Journal.open(path, { ...settings, "rollout.seed": 2, "data.n_samples": 5 });
  await expect(opening).rejects.toThrow(
    /other settings: `rollout\.seed` was 1 and is 2, `data\.n_samples` was not set and is 5\. Go on with the same/,
  );
});

test("a line that the program did not write is refused with its number", async () => {
  const path = await filled("strange.jsonl");
  await appendFile(path, '{"key": 3}\n');
  await expect(Journal.open(path, settings)).rejects.toThrow(
    /strange\.jsonl, line 5 is not what `trainyard generate` writes/,
  );
});
