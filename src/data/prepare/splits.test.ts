import { describe, expect, test } from "vitest";
import { hasAllShards, splitFiles } from "./splits.ts";

type Case = {
  readonly what: string;
  readonly paths: readonly string[];
  readonly config?: string;
  readonly splits: Readonly<Record<string, readonly string[]>>;
};

const cases: readonly Case[] = [
  {
    what: "files of a config come before others",
    paths: [
      "README.md",
      "main/test-00000-of-00001.parquet",
      "main/train-00000-of-00001.parquet",
      "socratic/train.parquet",
    ],
    config: "main",
    splits: { train: ["main/train-00000-of-00001.parquet"], test: ["main/test-00000-of-00001.parquet"] },
  },
  {
    what: "without a folder of that config all files count",
    paths: ["train.jsonl", "test.jsonl"],
    config: "main",
    splits: { train: ["train.jsonl"], test: ["test.jsonl"] },
  },
  {
    what: "a word counts whole, and a file's name before its folders",
    paths: ["data/training/test-1.json", "data/training/part.json", "latest/a.json"],
    splits: { test: ["data/training/test-1.json"], train: ["data/training/part.json"] },
  },
  {
    what: "several folders make one split, in order",
    paths: ["b/train.jsonl.gz", "a/train.jsonl.gz", "a/test.jsonl.gz", "red-team/attempts.jsonl.gz"],
    splits: { train: ["a/train.jsonl.gz", "b/train.jsonl.gz"], test: ["a/test.jsonl.gz"] },
  },
  {
    what: "where no name has a split's word, all files are training rows",
    paths: ["data/aime-2024.parquet", "dataset_infos.json", ".gitattributes", "_hidden.json"],
    splits: { train: ["data/aime-2024.parquet"] },
  },
  {
    what: "parquet wins over JSON of the same split, and examples are no data",
    paths: ["train.json", "train.parquet", "train_example.json", "val.jsonl", "dev.jsonl"],
    splits: { train: ["train.parquet"], validation: ["dev.jsonl", "val.jsonl"] },
  },
];

describe("which files hold which split", () => {
  for (const { what, paths, config = null, splits } of cases) {
    test(what, () => {
      expect(Object.fromEntries(splitFiles(paths, config))).toEqual(splits);
      expect(Object.fromEntries(splitFiles([...paths].reverse(), config))).toEqual(splits);
    });
  }
});

test("a series of shards is complete when all its numbers are there", () => {
  const shards = [
    "a/train-00000-of-00003-1f.parquet",
    "a/train-00001-of-00003-2e.parquet",
    "a/train-00002-of-00003-3d.parquet",
  ];
  expect(hasAllShards(shards)).toBe(true);
  for (const missing of shards) expect(hasAllShards(shards.filter((shard) => shard !== missing))).toBe(false);
  expect(hasAllShards(["train.parquet", "b/test-00000-of-00001.parquet"])).toBe(true);
});
