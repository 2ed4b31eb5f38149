/** The library: what a program that imports trainyard can use. */

export type {
  Advantage,
  AdvantageInput,
  AdvantageResult,
  AdvantageSettings,
} from "./algos/advantages/estimator.ts";
export { registerAdvantage } from "./algos/advantages/registry.ts";
export { type KlEstimate, registerKlEstimate } from "./algos/kl/estimates.ts";

export type { PolicyLoss, PolicySettings, PolicyTensors } from "./algos/losses/policy/policy-loss.ts";
export { registerPolicyLoss } from "./algos/losses/policy/registry.ts";
export {
  defineConfig,
  defineEval,
  defineGenerate,
  defineRewardModel,
  defineSft,
} from "./config/define-config.ts";
export type { EvalInput } from "./config/eval/schema.ts";
export type { GenerateInput } from "./config/generate/schema.ts";
export type { PpoInput } from "./config/ppo/schema.ts";
export type { RewardConfigInput } from "./config/reward/schema.ts";
export type { SftInput } from "./config/sft/schema.ts";
export { type RunningDashboard, startDashboard } from "./dashboard/server.ts";
export {
  type DataGeneratorDefinition,
  type DataRow,
  type DatasetFunction,
  type DatasetRequest,
  defineDataGenerator,
  defineDataset,
  defineSampler,
  type GeneratorBatch,
  type SamplerChoice,
  type SamplerDefinition,
  type TrainedBatch,
  type TrainedGroup,
  type TrainedResponse,
} from "./data/hooks.ts";
export type { LossMetrics, OptimizerStep, StepResult, TokenLoss, TokenRow, TrainOptions } from "./engine/contract.ts";
export type { Node } from "./graph/node.ts";
/** The operations that losses are written with. */
export * as ops from "./graph/ops.ts";
export { codeScorer } from "./rewards/code.ts";
export { defineRewardManager, type RewardManager } from "./rewards/manager.ts";
export type { RewardFunction, RewardInput, RewardValue } from "./rewards/reward.ts";
export { type CustomReward, defineReward, type Score, type ScorerInput, scorers } from "./rewards/reward.ts";
export { openSandbox, type Sandbox } from "./rewards/sandbox/sandbox.ts";
export type { Completion, Sample, SampleRequest, Sampling } from "./rollout/request.ts";
export type { Message } from "./text/chat-template.ts";
export { loadTokenizer, type Tokenizer } from "./text/tokenizer.ts";
export type { EvalReport } from "./train/evaluate/evaluate.ts";
export { evaluate, generate, type RunContext, trainReward, trainRl, trainSft } from "./train/from-config.ts";
export {
  type Generated,
  type GenerateOptions,
  type LoadedModel,
  type LoadOptions,
  loadModel,
  type PromptAndResponse,
  type TextPrompt,
} from "./train/load-model.ts";
export { UserError } from "./util/errors.ts";
export * as fields from "./util/field.ts";
/** Config keys: `field(fields.number(0), 0.5, "What it means.")`. */
export { field } from "./util/field.ts";
