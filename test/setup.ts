/** Property tests draw the same cases every time; FUZZ_SEED=random (or a number) draws others. */
import fc from "fast-check";

const seed = process.env.FUZZ_SEED ?? "1";
if (seed !== "random") fc.configureGlobal({ seed: Number(seed) });
