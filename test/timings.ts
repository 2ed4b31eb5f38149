/** Whether a metric measures time or the machine: only these may differ between two runs of one config. */
export const isTiming = (name: string): boolean => name.startsWith("timing_") || name.startsWith("perf/");
