/**
 * verl's own command lines, as they stand in its examples/ppo_trainer, rloo_trainer, sft and special_e2e/ppo_trainer of
 * 0.7.0. Paths and sizes are replaced, nothing else, and two steps are taken on a small model of the same family. What
 * needs a family, an adapter or a device that is not there ends with exit code 2 and its name.
 */
import { readFileSync } from "node:fs";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { isFamily } from "../src/models/families.ts";
import { modelTypeOf, type Recipe, RecipeYard } from "./recipes.ts";

type Runs = readonly Omit<Recipe, "name">[];
const file = new URL("fixtures/verl-recipes.json", import.meta.url);
const recipes = Object.entries(JSON.parse(readFileSync(file, "utf8")) as Record<string, Runs>).flatMap(([name, runs]) =>
  runs.map((run): Recipe => ({ name, ...run })),
);

let yard: RecipeYard;
beforeAll(async () => {
  yard = await RecipeYard.make();
});
afterAll(() => yard.remove());

/** What a recipe is told that cannot run, and the overrides with which it can. */
type Refusal = { readonly message: RegExp; readonly better: readonly string[] };

function refusalOf({ name, overrides }: Recipe): Refusal | null {
  const without = (...keys: readonly string[]) =>
    overrides.filter((override) => !keys.some((key) => override.startsWith(`${key}=`)));
  if (name.endsWith("_pfppo.sh")) {
    // A comment in the script cuts its command short; the rest is that of the plain recipe.
    const rest = recipes.find((it) => it.name.endsWith("run_deepseek7b_llm.sh"))?.overrides ?? [];
    return { message: /^` ` is not an override\. Write key=value/, better: [...rest, ...overrides.slice(0, -1)] };
  }
  if (overrides.some((override) => override.startsWith("model.lora_rank=")))
    return { message: /^`model\.lora_rank` is 32 .* LoRA is not supported/, better: without("model.lora_rank") };
  if (overrides.includes("trainer.device=cuda"))
    return {
      message: /^The device `cuda` cannot be used here .* `trainer\.device=cpu`/m,
      better: without("trainer.device"),
    };
  const isModel = (override: string) =>
    /^(actor_rollout_ref\.|critic\.)?model\.(path|partial_pretrain)=/.test(override);
  const path = overrides.find(isModel)?.replace(/^.*=/, "") ?? "";
  const modelType = modelTypeOf(path);
  if (isFamily(modelType)) return null;
  const better = overrides.map((override) => (isModel(override) ? override.replace(/=.*/, "=deepseek-llm") : override));
  return { message: new RegExp(`\`model_type\` is "?${modelType}`), better };
}

describe("two steps of each recipe are taken, or it is told by name what is not there", () => {
  test.each(recipes.map((recipe) => [recipe.name, recipe] as const))("%s", async (_, recipe) => {
    const refusal = refusalOf(recipe);
    if (refusal === null) await yard.expectSteps(recipe);
    else await yard.expectRefusal(recipe, refusal.message);
  });

  test("there are 39, and the code of the sandbox's one went to the service that it names", () => {
    expect(recipes).toHaveLength(39);
    expect(yard.calls).toBeGreaterThan(0);
  });
});

describe("with what it was told about put right, each of the others takes two steps too", () => {
  const refused = recipes.flatMap((recipe) => {
    const refusal = refusalOf(recipe);
    return refusal === null ? [] : [{ ...recipe, overrides: refusal.better }];
  });
  test.each(refused.map((recipe) => [recipe.name, recipe] as const))("%s", (_, recipe) => yard.expectSteps(recipe));
});
