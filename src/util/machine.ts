/** What this machine, or the container that the program runs in, has: memory that counts the container's limit, and cores. */
import { availableParallelism, totalmem } from "node:os";

export type Machine = {
  /** Bytes that the program may come to use: the machine's, or the container's limit where that is less. */
  readonly memory: number;
  /** Whether a container's limit is what counts. */
  readonly isLimited: boolean;
  /** Bytes of these that are not in use now. */
  readonly free: number;
  readonly cores: number;
};

/** Look at the machine. */
export function thisMachine(): Machine {
  const limit = process.constrainedMemory() ?? 0; // 0 and numbers past all memory mean that there is none
  const isLimited = limit > 0 && limit < totalmem();
  const memory = isLimited ? limit : totalmem();
  return { memory, isLimited, free: Math.min(memory, process.availableMemory()), cores: availableParallelism() };
}
