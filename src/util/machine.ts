/** The memory and cores of this machine, or of the container that the program runs in. */
import { availableParallelism, totalmem } from "node:os";

export type Machine = {
  /** Bytes that the program may use: those of the machine, or the container's limit if that is lower. */
  readonly memory: number;
  /** Whether the container's limit is the lower one. */
  readonly isLimited: boolean;
  /** Bytes of these that are not in use now. */
  readonly free: number;
  readonly cores: number;
};

/** Look at the machine. */
export function thisMachine(): Machine {
  const limit = process.constrainedMemory() ?? 0; // 0 and numbers above all memory mean that there is no limit
  const isLimited = limit > 0 && limit < totalmem();
  const memory = isLimited ? limit : totalmem();
  return { memory, isLimited, free: Math.min(memory, process.availableMemory()), cores: availableParallelism() };
}
