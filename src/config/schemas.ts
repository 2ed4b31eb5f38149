/** The config schemas of all verbs that have one, in the order the reference page lists them. */
import { evalSchema } from "./eval/schema.ts";
import { generateSchema } from "./generate/schema.ts";
import { ppoSchema } from "./ppo/schema.ts";
import { rewardSchema } from "./reward/schema.ts";
import type { AnySchema } from "./schema.ts";
import { sftSchema } from "./sft/schema.ts";

export const schemas: readonly AnySchema[] = [ppoSchema, sftSchema, rewardSchema, generateSchema, evalSchema];
