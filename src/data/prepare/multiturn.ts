/**
 * Three short conversations to try multi-turn fine-tuning with, two to train and one to test on. The columns are those of
 * verl's script of this name; the conversations are our own.
 */
import { assistant, type Dataset, type Output, system, type Turn, user } from "./dataset.ts";

const start = system("You answer briefly.");

const conversations: Readonly<Record<"train" | "test", readonly (readonly Turn[])[]>> = {
  train: [
    [
      start,
      user("Which planet is the largest?"),
      assistant("Jupiter."),
      user("And the smallest?"),
      assistant("Mercury."),
    ],
    [
      start,
      user("How many minutes are three hours?"),
      assistant("3 times 60 is 180 minutes."),
      user("And in seconds?"),
      assistant("180 times 60 is 10800 seconds."),
    ],
  ],
  test: [
    [
      start,
      user("Write a function that doubles a number in TypeScript."),
      assistant("```ts\nconst double = (x: number): number => 2 * x;\n```"),
      user("Now one that halves it."),
      assistant("```ts\nconst half = (x: number): number => x / 2;\n```"),
    ],
  ],
};

const outputOf = (split: "train" | "test"): Output => ({
  file: `${split}.parquet`,
  split,
  takes: "all",
  make: () => conversations[split].map((messages) => ({ messages })),
});

export const multiturn: Dataset = {
  name: "multiturn",
  aliases: [],
  summary: "three short conversations to try multi-turn `trainyard sft` with; nothing is downloaded",
  source: null,
  saveDir: "~/data/multiturn",
  outputs: [outputOf("train"), outputOf("test")],
};
