/** The library: what a program that imports trainyard can use. */
export type { Advantage, AdvantageInput, AdvantageOptions, AdvantageResult } from "./algos/advantage.ts";
export { registerAdvantage } from "./algos/advantages.ts";
export { registerPolicyLoss } from "./algos/policy-loss.ts";
export type { PolicyConfig, PolicyLoss, PolicyTerms } from "./algos/policy-terms.ts";
export { defineConfig } from "./config/define.ts";
export type { SftConfig, SftInput } from "./config/sft.ts";
export type { Node } from "./graph/node.ts";
/** The operations that losses are written with. */
export * as ops from "./graph/ops.ts";
export type { TrainContext } from "./train/context.ts";
export { trainSft } from "./train/sft.ts";
export { UserError } from "./util/errors.ts";
