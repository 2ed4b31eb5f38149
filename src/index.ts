/** The library: what a program that imports trainyard can use. */
export type { Advantage, AdvantageInput, AdvantageOptions, AdvantageResult } from "./algos/advantage.ts";
export { registerAdvantage } from "./algos/advantages.ts";
export { registerPolicyLoss } from "./algos/policy-loss.ts";
export type { PolicyConfig, PolicyLoss, PolicyTerms } from "./algos/policy-terms.ts";
export { defineConfig } from "./config/define.ts";
export type { EvalConfig } from "./config/eval.ts";
export type { GenerateConfig } from "./config/generate.ts";
export type { PpoConfig, PpoInput } from "./config/ppo.ts";
export type { RewardConfig } from "./config/reward.ts";
export type { SftConfig, SftInput } from "./config/sft.ts";
export type { Node } from "./graph/node.ts";
/** The operations that losses are written with. */
export * as ops from "./graph/ops.ts";
export { codeScorer } from "./rewards/code.ts";
export type { RewardFunction, RewardInput, RewardValue } from "./rewards/reward.ts";
export { type CustomReward, defineReward } from "./rewards/reward.ts";
export { openSandbox, type Sandbox } from "./rewards/sandbox/sandbox.ts";
export type { Completion, Sample, SampleRequest, Sampling } from "./rollout/request.ts";
export type { TrainContext } from "./train/context.ts";
export { evaluate } from "./train/evaluate.ts";
export { generate } from "./train/generate.ts";
export { trainReward } from "./train/reward-model.ts";
export { trainRl } from "./train/rl.ts";
export { trainSft } from "./train/sft.ts";
export { UserError } from "./util/errors.ts";
