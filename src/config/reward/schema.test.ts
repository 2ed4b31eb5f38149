import { describe, expect, test } from "vitest";
import { UserError } from "../../util/errors.ts";
import { mandatory } from "../../util/field.ts";
import { hasInterpolation } from "../interpolate.ts";
import { parseOverride } from "../overrides.ts";
import { resolve } from "../resolve.ts";
import { allKeys, fieldsOf, find } from "../schema.ts";
import { rewardSchema } from "./schema.ts";

const least = ["model.path=m", "data.train_files=pairs.jsonl"];

function reward(...overrides: readonly string[]) {
  return resolve(rewardSchema, [[...least, ...overrides].map(parseOverride)], { home: "/home/me", env: {} });
}

test("model and pairs are all that must be given", () => {
  const { config, notices } = reward();
  expect(notices).toEqual([]);
  expect(config).toMatchObject({
    data: { train_files: ["pairs.jsonl"], val_files: [], chosen_key: "chosen", rejected_key: "rejected" },
    optim: { lr: 1e-5 },
    trainer: { total_epochs: 1, default_local_dir: "checkpoints/reward-model/test" },
  });
  expect(() => resolve(rewardSchema, [], { home: "/home/me", env: {} })).toThrow(
    /`data\.train_files` is missing\..*\n`model\.path` .* is missing\./,
  );
});

test("every default is a value of its own type, and every key says in one sentence what it means", () => {
  for (const [key, { type, default: value, doc }] of fieldsOf(rewardSchema.fields)) {
    if (value !== mandatory && !hasInterpolation(value)) expect(type.schema.safeParse(value).success, key).toBe(true);
    expect(doc, key).toMatch(/^[A-Z].*\.$/);
  }
});

test("no key is in two tables, and every other spelling leads somewhere", () => {
  const keys = allKeys(rewardSchema);
  expect(new Set(keys).size).toBe(keys.length);
  for (const key of Object.values(rewardSchema.aliases)) expect(find(rewardSchema, key).kind, key).not.toBe("unknown");
});

describe("keys that do not go together are refused", () => {
  const cases: readonly [overrides: readonly string[], says: RegExp][] = [
    [["data.val_files=v.jsonl", "data.val_size=9"], /`data\.val_files` is v\.jsonl and `data\.val_size` is 9/],
    [["data.max_token_len_per_gpu=100"], /`data\.max_token_len_per_gpu` is 100, less than one row/],
    [["trainer.resume_mode=resume_path"], /`trainer\.resume_from_path` is missing/],
    [["data.messages_key=m"], /`data\.messages_key` .* is not a key of `reward`/],
    [["data.multiturn.messages_key=m"], /`data\.multiturn\.messages_key` .* is not a key of `reward`/],
    [["trainer.logger=[consle]"], /`trainer\.logger` is "consle", which does not exist/],
  ];
  test.each(cases)("%s", (overrides, says) => {
    expect(() => reward(...overrides)).toThrow(UserError);
    expect(() => reward(...overrides)).toThrow(says);
  });
});

test("validating often says that it has no effect only where there is nothing to validate on", () => {
  expect(reward("trainer.test_freq=5").notices).toEqual([
    expect.stringMatching(/`trainer\.test_freq`=5 has no effect/),
  ]);
  expect(reward("trainer.test_freq=5", "data.val_size=4").notices).toEqual([]);
  expect(reward("data.val_size=4").config.data.val_files).toEqual([]);
});
