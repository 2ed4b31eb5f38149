/**
 * The keys of `trainer.` for `trainyard ppo`: how long, how often, where to and on what.
 *
 * Defaults are verl's, except `device` (cpu), `logger` ([console]) and `save_freq` (the last step). `seed`, `threads`, `engine`,
 * `console`, `max_skipped_updates`, `best_metric` and `logged_tokens` are ours.
 */
import { bool, field, int, name, nullable, number, path } from "../../util/field.ts";
import { sftSchema } from "../sft/schema.ts";
import { everySteps } from "./values.ts";

const { trainer: sft } = sftSchema.fields;

export const trainer = {
  project_name: field(name, "verl_examples", sft.project_name.doc),
  experiment_name: field(name, "gsm8k", sft.experiment_name.doc),
  default_local_dir: sft.default_local_dir,
  total_epochs: field(int(1), 30, "Passes over the training prompts."),
  total_training_steps: field(nullable(int(1)), null, "Steps; null for what total_epochs gives."),
  save_freq: field(
    nullable(everySteps),
    null,
    "Steps between checkpoints; the last step is saved too. null saves the last step alone, -1 saves nothing.",
  ),
  test_freq: field(everySteps, -1, "Steps between validations; the last step validates too, unless this is -1."),
  val_before_train: field(bool, true, "Validate before the first step, and when a run resumes."),
  val_only: field(bool, false, "Stop after that validation."),
  critic_warmup: field(
    int(0),
    0,
    "The actor is first updated at this step; before it only the critic learns. The actor's learning-rate schedule starts there too.",
  ),
  balance_batch: field(bool, true, "Order the responses of a step by their work before it is cut into mini-batches."),
  resume_mode: sft.resume_mode,
  resume_from_path: sft.resume_from_path,
  max_actor_ckpt_to_keep: field(
    nullable(int(1)),
    null,
    "Delete the actor of older checkpoints beyond this many; null keeps as many as of the critic.",
  ),
  max_critic_ckpt_to_keep: field(
    nullable(int(1)),
    null,
    "The same for the critic. A checkpoint without one of its models cannot be resumed from; one without both is deleted.",
  ),
  esi_redundant_time: field(
    number(0),
    0,
    "Seconds to spare when a checkpoint is saved because the machine is taken away, see resuming.md.",
  ),
  max_skipped_updates: field(
    int(0),
    10,
    "Stop when this many updates in a row had a gradient that is not finite; 0 stops at the first.",
  ),
  best_metric: field(
    nullable(name),
    null,
    "Validation metric, such as val-core/openai/gsm8k/acc/mean@1: the actor with its highest value is kept in best/.",
  ),
  logged_tokens: field(
    int(0),
    2048,
    "Response tokens of a step that rollouts.jsonl keeps, in whole groups; 0 for none.",
  ),
  logger: { ...sft.logger, doc: "Where metrics go: console, file, tensorboard, wandb, mlflow." },
  console: sft.console,
  log_val_generations: field(int(0), 0, "Validation samples that go to the loggers as a table."),
  rollout_data_dir: field(nullable(path), null, "Folder for the responses of each step as jsonl; null for none."),
  validation_data_dir: field(nullable(path), null, "Folder for the responses of each validation as jsonl."),
  seed: sft.seed,
  device: sft.device,
  threads: sft.threads,
  engine: sft.engine,
};
