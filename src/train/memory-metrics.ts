/** The memory that a run uses, under verl's names. Here a model is in the program's own memory, so that is what counts. */
import { thisMachine } from "../util/machine.ts";

const KB_PER_GB = 2 ** 20;
const BYTES_PER_GB = 2 ** 30;

/** The most that this process has had in memory so far, and what all programs of the machine use now. */
export function memoryMetrics(): Record<string, number> {
  const { memory, free } = thisMachine();
  return {
    "perf/max_memory_allocated_gb": process.resourceUsage().maxRSS / KB_PER_GB,
    "perf/cpu_memory_used_gb": (memory - free) / BYTES_PER_GB,
  };
}
