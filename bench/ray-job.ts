/** The jobs and answers of the sides of the ray bench. */
import * as z from "zod";
import { jobSchema } from "./train-job.ts";

export const rayJobSchema = jobSchema.pick({ folder: true, rows: true, optimizer: true }).extend({
  /** The interpreter of the workers. */
  python: z.string(),
  workers: z.int(),
  /** Sequences of one pass on one worker. */
  microRows: z.int(),
});
export type RayJob = z.infer<typeof rayJobSchema>;

/** The answer of `ray-calls.ts`: the time of each of many calls. */
export const callTimesSchema = z.object({ milliseconds: z.array(z.number()) });
export type CallTimes = z.infer<typeof callTimesSchema>;

/** The job of `ray-handover.ts`. */
export const handoverJobSchema = rayJobSchema.extend({ vllmPython: z.string() });

/** The answer of `ray-handover.ts`: the time of each transfer of weights. */
export const handoverTimesSchema = z.object({ seconds: z.array(z.number()) });
export type HandoverTimes = z.infer<typeof handoverTimesSchema>;
