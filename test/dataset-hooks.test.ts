/** Datasets of the user (`data.custom_cls`) for `trainyard sft` and `trainyard reward`, and what `data validate` sees. */
import { writeFile } from "node:fs/promises";
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, expect, test, vi } from "vitest";
import { Sandbox, sum } from "./sandbox.ts";

const library = fileURLToPath(new URL("../src/index.ts", import.meta.url));

/** Rows out of a text file: a line such as `3+4=7` is one. */
const dataset = `
import { readFileSync } from "node:fs";
import { defineDataset } from "${library}";

const lines = (files: readonly string[]) => files.flatMap((file) => readFileSync(file, "utf8").trim().split("\\n"));

export default defineDataset(({ split, files }) =>
  lines(files)
    .filter((_, i) => (i % 5 === 0) === (split === "val"))
    .map((line) => ({ question: line.split("=")[0] + "=?", answer: line.split("=")[1] + "." })),
);

export const pairs = defineDataset(({ split, files }) =>
  split === "val" ? [] : lines(files).map((line) => ({ prompt: line, chosen: line + ".", rejected: "no." })),
);

export const broken = defineDataset(({ files }) => lines(files).map((line, i) => ({ question: i < 2 ? 3 : line, answer: "7" })));
`;

let box: Sandbox;
beforeAll(async () => {
  box = await Sandbox.make();
  await writeFile(box.path("dataset.ts"), dataset);
  const lines = Array.from({ length: 40 }, (_, i) => sum(i)).map(({ question, answer }) =>
    question.replace("?", answer),
  );
  await writeFile(box.path("sums.txt"), lines.map((line) => `${line.replace(/\.$/, "")}\n`).join(""));
});
afterAll(() => box.remove());

const keys = () => [`data.train_files=${box.path("sums.txt")}`, `data.custom_cls.path=${box.path("dataset.ts")}`];

test("sft trains on the rows of a dataset as on those of a file", async () => {
  const rows = Array.from({ length: 40 }, (_, i) => sum(i)).filter((_, i) => i % 5 !== 0);
  const file = await box.writeLines("same.jsonl", rows);
  const common = ["data.response_key=answer", "trainer.total_training_steps=3"];
  expect(await box.sft("file", `data.train_files=${file}`, "data.val_files=null", ...common)).toMatchObject({
    code: 0,
  });
  const { code, said } = await box.sft("dataset", ...keys(), `data.val_files=${box.path("sums.txt")}`, ...common);
  expect([code, said]).toEqual([0, expect.stringContaining("on 32 rows, 8 to validate on")]);
  expect((await box.outcome("dataset")).files).toEqual((await box.outcome("file")).files);
  expect((await box.metrics("dataset")).at(-1)).toHaveProperty("val/loss");
});

test("reward trains on its pairs", async () => {
  const { code, said } = await box.command(
    "reward",
    ...keys(),
    "data.custom_cls.name=pairs",
    `model.path=${box.model}`,
    "data.train_batch_size=8",
    "trainer.total_training_steps=1",
    `trainer.default_local_dir=${box.path("reward")}`,
  );
  expect([code, said]).toEqual([0, expect.stringContaining("on 40 pairs")]);
});

test("data validate checks the rows that the dataset gives", async () => {
  const validate = async (...more: readonly string[]) => {
    const printed: string[] = [];
    const out = vi.spyOn(process.stdout, "write").mockImplementation((text) => printed.push(String(text)) > 0);
    const [, ...given] = keys();
    const { code, said } = await box
      .command("data", "validate", box.path("sums.txt"), ...given, ...more)
      .finally(() => out.mockRestore());
    return { code, said, printed: printed.join("") };
  };
  const columns = ["data.prompt_key=question", "data.response_key=answer"];
  expect(await validate("--for", "sft", ...columns)).toMatchObject({
    code: 0,
    printed: expect.stringMatching(/sums\.txt: 32 rows, checked for `trainyard sft`/),
  });
  expect(await validate("--for", "sft", "data.custom_cls.name=broken", ...columns)).toMatchObject({
    code: 2,
    printed: expect.stringMatching(/error: 2 of 40 rows \(1, 2\): column `question`: expected/),
  });
  expect(await validate(...columns)).toMatchObject({
    code: 2,
    said: expect.stringMatching(/The dataset of `data\.custom_cls\.path` reads the file.*Name it with --for/),
  });
});
