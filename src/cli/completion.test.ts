/** The completion script in a real bash: what Tab offers after some words. */
import { spawnSync } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { fieldsOf } from "../config/schema.ts";
import { loadSchemas } from "./verbs.ts";

const launcher = fileURLToPath(new URL("../../bin/trainyard.js", import.meta.url));
const folder = mkdtempSync(join(tmpdir(), "trainyard-completion-"));
afterAll(() => rmSync(folder, { recursive: true }));

const trainyard = (...args: readonly string[]) =>
  spawnSync(process.execPath, [launcher, ...args], { encoding: "utf8", cwd: folder });
const has = (program: string) => spawnSync(program, ["--version"]).status === 0;

let script: string;
beforeAll(() => {
  script = trainyard("completion", "bash").stdout;
  writeFileSync(join(folder, "script"), script);
  writeFileSync(join(folder, "train.parquet"), "");
});

/** What bash offers when Tab is pressed after these words. Words are cut at `=`, as readline does. */
function offers(...words: readonly string[]): string[] {
  const cut = words.flatMap((word) => word.split(/(=)/).filter((part, i) => part !== "" || i === 0 || word === ""));
  const quoted = ["trainyard", ...cut].map((word) => `'${word}'`).join(" ");
  const program = `compopt() { :; }; . ./script; COMP_WORDS=(${quoted}); COMP_CWORD=$((\${#COMP_WORDS[@]} - 1)); _trainyard; printf '%s\\n' "\${COMPREPLY[@]}"`;
  const { stdout, stderr } = spawnSync("bash", ["--norc", "-c", program], { encoding: "utf8", cwd: folder });
  expect(stderr).toBe("");
  return stdout.split("\n").filter((line) => line !== "");
}

describe.skipIf(!has("bash"))("in bash (skipped where there is none)", () => {
  test("the first word is a verb", () => {
    expect(offers("s")).toEqual(["sft", "serve"]);
    expect(offers("--v")).toEqual(["--version"]);
    expect(offers("help", "pp")).toEqual(["ppo"]);
    expect(offers("completion", "")).toEqual(["bash", "zsh", "fish"]);
  });

  test.each([
    [
      ["ppo", "actor_rollout_ref.r"],
      ["actor_rollout_ref.rollout.", "actor_rollout_ref.ref."],
    ],
    [
      ["ppo", "actor_rollout_ref.rollout.n"],
      ["n=", "name=", "nnodes=", "n_gpus_per_node="].map((key) => `actor_rollout_ref.rollout.${key}`),
    ],
    [
      ["sft", "optim.lr_w"],
      ["optim.lr_warmup_steps=", "optim.lr_warmup_steps_ratio="],
    ],
    [["sft", "no.such"], []],
    [["sft", "model.path=m", "--d"], ["--dry-run"]],
    [["export", "run", "--f"], ["--force"]],
    [
      ["serve", "m", "--max-n"],
      ["--max-num-seqs", "--max-num-batched-tokens"],
    ],
    [["sft", "data.train_files=tr"], ["train.parquet"]],
    [["eval", "--j"], ["--json"]],
  ])("%j is completed part by part", (words, found) => {
    expect(offers(...words).toSorted()).toEqual(found.toSorted());
  });

  test("every key of every schema is completed", async () => {
    for (const { verb, fields } of await loadSchemas()) {
      for (const key of fieldsOf(fields).keys()) expect(script).toMatch(new RegExp(`^ +${verb}\\) .*[" ]${key}=`, "m"));
    }
  });

  test("a completion takes less than a tenth of a second", () => {
    const times = [1, 2, 3, 4, 5].map(() => {
      const started = performance.now();
      offers("ppo", "");
      return performance.now() - started;
    });
    expect(Math.min(...times)).toBeLessThan(100);
  });
});

describe.each([
  ["zsh", "-n"],
  ["fish", "-n"],
])("%s", (shell, check) => {
  test.skipIf(!has(shell))("can read its script (skipped where there is none)", () => {
    writeFileSync(join(folder, shell), trainyard("completion", shell).stdout);
    expect(spawnSync(shell, [check, join(folder, shell)], { encoding: "utf8" })).toMatchObject({
      status: 0,
      stderr: "",
    });
  });
});

test.skipIf(!has("fish"))(
  "fish offers verbs with their summaries, keys and options (skipped where there is none)",
  () => {
    writeFileSync(join(folder, "fish"), trainyard("completion", "fish").stdout);
    const offered = (line: string) =>
      spawnSync("fish", ["--no-config", "-c", `source fish; complete -C '${line}'`], { encoding: "utf8", cwd: folder })
        .stdout;
    expect(offered("trainyard exp")).toMatch(/^export\twrite the model of a checkpoint/);
    expect(offered("trainyard sft optim.lr_d")).toBe("optim.lr_decay_steps=\n");
    expect(offered("trainyard export run --fo")).toBe("--force\n");
  },
);

test.each([
  [[], /^The name of the shell is missing\. Write trainyard completion bash\|zsh\|fish\.\n$/],
  [["fsh"], /^The shell is "fsh", which does not exist\. Did you mean "fish"/],
  [["bash", "zsh"], /^`zsh` is one word too many/],
])("completion %j is one message and exit code 2", (args, message) => {
  const { status, stdout, stderr } = trainyard("completion", ...args);
  expect(stderr).toMatch(message);
  expect({ status, stdout }).toEqual({ status: 2, stdout: "" });
});
