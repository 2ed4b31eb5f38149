/** The library: what a program that imports trainyard can use. */
export { defineConfig } from "./config/define.ts";
export type { SftConfig, SftInput } from "./config/sft.ts";
export type { TrainContext } from "./train/context.ts";
export { trainSft } from "./train/sft.ts";
export { UserError } from "./util/errors.ts";
