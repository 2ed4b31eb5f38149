/** The config schemas of all verbs that have one, in the order the reference page lists them. */
import { evalSchema } from "./eval.ts";
import { generateSchema } from "./generate.ts";
import { ppoSchema } from "./ppo.ts";
import { rewardSchema } from "./reward.ts";
import type { AnySchema } from "./schema.ts";
import { sftSchema } from "./sft.ts";

export const schemas: readonly AnySchema[] = [ppoSchema, sftSchema, rewardSchema, generateSchema, evalSchema];
