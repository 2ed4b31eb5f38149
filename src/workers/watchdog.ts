/**
 * A thread beside a function that may hang: it ends the process when that takes too much memory, or when the program
 * that started it is gone.
 */
import { workerData } from "node:worker_threads";

const { memoryMb, parent } = workerData as { readonly memoryMb: number; readonly parent: number }; // see worker-process.ts

setInterval(() => {
  if (process.ppid !== parent || process.memoryUsage.rss() > memoryMb * 2 ** 20) process.kill(process.pid, "SIGKILL");
}, 100);
