/**
 * The keys of `checkpoint.`, for the actor and for the critic: what a checkpoint holds of a model, and when it is written.
 *
 * `model` and `hf_model` are the same here: a checkpoint has weights as a Hugging Face folder. `extra` is accepted and
 * needs nothing: the state of a run is in every checkpoint, and learning rates follow from the step.
 */
import { bool, field, type Resolved, someOf } from "../../util/field.ts";

const contents = someOf("model", "optimizer", "extra", "hf_model");

/** The keys below `branch`. */
export function checkpointOf<Branch extends string>(branch: Branch) {
  return {
    save_contents: field(
      contents,
      ["model", "optimizer", "extra"],
      "What is saved: model (or hf_model) for the weights, optimizer for its moments. The run's state is always saved.",
    ),
    load_contents: field(
      contents,
      `\${${branch}.checkpoint.save_contents}`,
      "What a resumed run reads; without weights it starts from the model's path, without optimizer with new moments.",
    ),
    async_save: field(
      bool,
      false,
      "Write checkpoints while the next step samples; true for the actor or the critic counts for both.",
    ),
  };
}

/** What a checkpoint holds of a model, and when it is written. */
export type CheckpointSettings = Resolved<ReturnType<typeof checkpointOf>>;
