/** The optimizer of a run as its config describes it: the learning rate of each step, AdamW and clipping. */
import type { SftConfig } from "../config/sft/schema.ts";
import type { OptimizerStep } from "../engine/contract.ts";
import { learningRate, type Schedule } from "../nn/schedule.ts";

type OptimizerKeys = Omit<SftConfig["optim"], "clip_grad">;

/** The learning-rate schedule of a run of `totalSteps` steps. */
export function scheduleOf(optim: OptimizerKeys, totalSteps: number): Schedule {
  const { lr, lr_warmup_steps: steps, lr_warmup_steps_ratio: ratio } = optim;
  const warmupSteps = steps >= 0 ? steps : Math.floor(ratio * totalSteps);
  const { lr_scheduler_type: type, min_lr_ratio: minRatio, num_cycles: cycles, lr_decay_steps: end } = optim;
  return { type, lr, warmupSteps, totalSteps: end ?? totalSteps, minRatio, cycles };
}

/** The optimizer in the step number `step` of the schedule, counted from 1. */
export function optimizerStep(
  optim: OptimizerKeys,
  { step, totalSteps, maxNorm }: { readonly step: number; readonly totalSteps: number; readonly maxNorm: number },
): OptimizerStep {
  const { betas, weight_decay: weightDecay } = optim;
  return { lr: learningRate(scheduleOf(optim, totalSteps), step - 1), betas, eps: 1e-8, weightDecay, maxNorm };
}
