/** A thread that does its share of the optimizer's work on shared memory; `optimizer-pool.ts` is the other end. */
import { parentPort } from "node:worker_threads";
import { doShare, type Work } from "./optimizer.ts";

parentPort?.on("message", (work: Work) => parentPort?.postMessage(doShare(work)));
