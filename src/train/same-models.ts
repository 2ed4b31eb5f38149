/**
 * A run folder belongs to its models: a run that resumes with another one would train weights with a foreign tokenizer, or
 * keep them near a foreign reference. Identity is content, so a folder that was moved or renamed is the same model.
 */
import * as z from "zod";
import type { ModelSpec } from "../engine/contract.ts";
import { identifyModel, ModelIdentity } from "../models/identity.ts";
import type { Checkpoint } from "../run/checkpoint.ts";
import { UserError } from "../util/errors.ts";
import { info } from "../util/log.ts";

/** The models that a run begins with, by what a message calls them. A checkpoint keeps it. */
const RunModels = z.record(z.string(), ModelIdentity);
export type RunModels = z.infer<typeof RunModels>;

/** What differs between two models, as a message says it. */
const parts = {
  config: "another config.json",
  tokenizer: "another tokenizer",
  weights: "other weights",
} as const;

/** Identify the models of a run. A checkpoint that was made with other ones is refused. */
export async function checkModels(
  start: Checkpoint | null,
  specs: Readonly<Record<string, ModelSpec>>,
): Promise<RunModels> {
  const models: Record<string, ModelIdentity> = {};
  for (const [name, spec] of Object.entries(specs)) models[name] = await identifyModel(spec);
  if (start === null) return models;
  const kept = z.object({ models: RunModels }).safeParse(start.state);
  if (!kept.success) {
    info(`${start.dir} does not say which models it was made with, so they are not checked. The next checkpoint does.`);
    return models;
  }
  for (const [name, model] of Object.entries(models)) {
    const before = kept.data.models[name];
    if (before !== undefined) compare(name, before, model, start.dir);
  }
  return models;
}

function compare(name: string, before: ModelIdentity, now: ModelIdentity, checkpoint: string): void {
  // Safe: `parts` has these keys and no other.
  const differing = (Object.keys(parts) as (keyof typeof parts)[]).filter((part) => before[part] !== now[part]);
  if (differing.length === 0) return;
  const what = differing.map((part) => parts[part]).join(" and ");
  const where = before.folder === now.folder ? `which has ${what} now` : `and ${now.folder} has ${what}`;
  throw new UserError(
    `${checkpoint} was made with another ${name}: the run began with ${before.folder}, ${where}. ` +
      "Give the same model, or start over with `trainer.resume_mode=disable`.",
  );
}
