/** Every dataset that `trainyard data` prepares, by name. */
import type { Dataset } from "./dataset.ts";
import { gsm8k } from "./gsm8k.ts";
import { hellaswag } from "./hellaswag.ts";
import { hhRlhf } from "./hh-rlhf.ts";
import { math } from "./math.ts";
import { multiturn } from "./multiturn.ts";
import { pictures } from "./pictures.ts";
import { searchR1 } from "./search-r1.ts";

export const datasets: readonly Dataset[] = [...gsm8k, ...math, ...hhRlhf, ...pictures, hellaswag, searchR1, multiturn];

/** The dataset of a name; `-` and `_` are the same, and the `.py` of verl's script may stay. */
export function findDataset(name: string): Dataset | null {
  const spelt = (it: string) => it.toLowerCase().replaceAll("-", "_").replace(/\.py$/, "");
  return datasets.find((it) => [it.name, ...it.aliases].some((known) => spelt(known) === spelt(name))) ?? null;
}
