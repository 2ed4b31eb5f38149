/** The programs of a model, each compiled when it is first needed. */
import type { Program } from "../../onnx/emit.ts";
import type { Executable, Runtime } from "../../runtime/runtime.ts";
import type { HeadName, TokenLoss } from "../contract.ts";
import {
  type Form,
  formKey,
  forwardProgram,
  logitsProgram,
  type TrainedModel,
  type TrainProgram,
  trainProgram,
} from "./programs.ts";

/** A training program that is ready to run. */
export type Trainer = TrainProgram & { readonly executable: Executable };

export class ProgramCache {
  readonly #model: TrainedModel & { readonly runtime: Runtime };
  readonly #executables = new Map<string, Promise<Executable>>();
  readonly #trainers = new Map<string, Promise<Trainer>>();

  constructor(model: TrainedModel & { readonly runtime: Runtime }) {
    this.#model = model;
  }

  /** Outputs of heads, without gradients. */
  forward(heads: readonly HeadName[], options: { temperature: number; form: Form }): Promise<Executable> {
    const key = `forward ${heads} ${options.temperature} ${formKey(options.form)}`;
    return this.#executable(key, () => forwardProgram(this.#model.config, heads, options));
  }

  logits(form: Form): Promise<Executable> {
    return this.#executable(`logits ${formKey(form)}`, () => logitsProgram(this.#model.config, form));
  }

  /** A micro-batch of training; with `isAdding` the gradient is added to the one before. */
  trainer(loss: TokenLoss, kind: { isAdding: boolean; form: Form }): Promise<Trainer> {
    const key = `${loss.key} ${kind.isAdding} ${formKey(kind.form)}`;
    let trainer = this.#trainers.get(key);
    if (trainer === undefined) {
      const built = trainProgram(this.#model, loss, kind);
      trainer = this.#model.runtime.load(built.program).then((executable) => ({ ...built, executable }));
      this.#trainers.set(key, trainer);
    }
    return trainer;
  }

  #executable(key: string, build: () => Program): Promise<Executable> {
    let executable = this.#executables.get(key);
    if (executable === undefined) {
      executable = this.#model.runtime.load(build());
      this.#executables.set(key, executable);
    }
    return executable;
  }
}
