import { appendFile, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import fc from "fast-check";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { JsonLinesFile, LineFollower } from "./json-lines.ts";

let folder: string;
let path: string;
beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), "trainyard-lines-"));
  path = join(folder, "lines.jsonl");
});
afterEach(() => rm(folder, { recursive: true }));

/** A follower and what it has seen since its last reset. */
function follow() {
  const seen: { line: string; start: number }[] = [];
  const follower = new LineFollower(path, {
    onReset: () => seen.splice(0),
    onLine: (line, start) => seen.push({ line: line.toString("utf8"), start }),
  });
  return { seen, follower, lines: () => seen.map(({ line }) => line) };
}

describe("a follower", () => {
  test("sees every line once and in order, with its offset, however the bytes are split", async () => {
    const property = fc.asyncProperty(
      fc.array(fc.string({ unit: "binary", maxLength: 20 }), { maxLength: 12 }),
      fc.array(fc.nat(400), { maxLength: 6 }),
      async (texts, cuts) => {
        const clean = texts.map((text) => text.replaceAll("\n", ""));
        const bytes = Buffer.from(clean.map((line) => `${line}\n`).join(""));
        const ends = [...new Set([...cuts.map((cut) => cut % (bytes.length + 1)), bytes.length])].sort((a, b) => a - b);
        await rm(path, { force: true });
        const { seen, follower } = follow();
        let done = 0;
        for (const end of ends) {
          await appendFile(path, bytes.subarray(done, end));
          done = end;
          await follower.refresh();
        }
        let start = 0;
        const expected = clean.map((line) => {
          const at = { line: Buffer.from(`${line}\n`).toString("utf8").slice(0, -1), start };
          start += Buffer.byteLength(line) + 1;
          return at;
        });
        expect(seen).toEqual(expected);
      },
    );
    await fc.assert(property, { numRuns: 60 });
  });

  test("reads lines that are longer than what it reads at once", async () => {
    const lines = [..."ab"].map((letter) => letter.repeat(5 << 20));
    await writeFile(path, `${lines.join("\n")}\nshort\n`);
    const { follower, seen } = follow();
    await follower.refresh();
    expect(seen.map(({ line, start }) => [line.length, line[0], start])).toEqual([
      [5 << 20, "a", 0],
      [5 << 20, "b", (5 << 20) + 1],
      [5, "s", 2 * ((5 << 20) + 1)],
    ]);
  });

  const changes: Record<string, [before: string, after: string]> = {
    "is shorter than before": ["one\ntwo\n", "one\n"],
    "was cut back and has grown past where it was": ["one\ntwo\n", "one\nanother two\nthree\n"],
    "has other text of the same length": ["one\ntwo\n", "one\nTWO\n"],
    "is gone": ["one\ntwo\n", ""],
  };
  for (const [what, [before, after]] of Object.entries(changes)) {
    test(`starts again when the file ${what}`, async () => {
      await writeFile(path, before);
      const { follower, lines } = follow();
      await follower.refresh();
      if (after === "") await rm(path);
      else await writeFile(path, after);
      await follower.refresh();
      expect(lines()).toEqual(after.split("\n").slice(0, -1));
    });
  }

  test("that is refreshed twice at once sees a line once", async () => {
    await writeFile(path, "one\ntwo\n");
    const { follower, lines } = follow();
    await Promise.all([follower.refresh(), follower.refresh()]);
    expect(lines()).toEqual(["one", "two"]);
  });
});

test("a writer that resumes after a step keeps exactly the lines up to it", async () => {
  const line = (step: number, text: string) => `{"step":${step},"text":"${text}"}\n`;
  const kept = line(0, "a") + line(1, "b") + line(1, "c");
  for (const tail of [line(2, "late"), '{"step":1,"te', `not ours\n${line(1, "after it")}`, '{"step":1,"cut\n', "\n"]) {
    await writeFile(path, kept + tail);
    const file = await JsonLinesFile.open(path, 1);
    await file.append(2, { text: "new", number: Number.NaN });
    await file.close();
    const { follower, lines } = follow();
    await follower.refresh();
    expect(lines().join("\n")).toBe(`${kept}{"step":2,"text":"new","number":null}`);
  }
});
