/** The embedded engine: models on onnxruntime in this process, one engine thread for all of them. */
import { input, neg } from "../../graph/ops.ts";
import { parameterSpecs, readConfig, withHead } from "../../models/config.ts";
import { loadParameters } from "../../models/weights.ts";
import { compile } from "../../onnx/emit.ts";
import { Runtime, type RuntimeOptions } from "../../runtime/runtime.ts";
import { Vectors } from "../../runtime/vectors.ts";
import { Random } from "../../util/random.ts";
import type { Engine, ModelSpec } from "../contract.ts";
import { EmbeddedModel } from "./model.ts";
import { measurePeak } from "./peak.ts";

export class EmbeddedEngine implements Engine {
  readonly #runtime: Runtime;
  readonly #isCpu: boolean;

  constructor(options: RuntimeOptions = {}) {
    this.#runtime = new Runtime(options);
    this.#isCpu = (options.device ?? "cpu") === "cpu";
  }

  /** Load a Hugging Face folder. */
  async open({ folder, tokenizerFolder = folder, head, seed = 0, sampler = {} }: ModelSpec): Promise<EmbeddedModel> {
    await this.#runtime.load(compile({ y: neg(input("x", [1])) })); // a device that is missing is reported now
    const read = await readConfig(folder);
    const config = head === undefined ? read : withHead(read, head);
    const specs = parameterSpecs(config);
    const vectors = new Vectors(specs);
    const view = (spec: { name: string }) => vectors.view("weight", spec.name);
    const { uninitialised } = await loadParameters(folder, specs, view, { allowNewHead: head !== undefined });
    const random = new Random(seed, "new head");
    for (const spec of uninitialised) {
      // As transformers does: normal weights of the model's own spread, biases zero.
      const spread = typeof config.raw.initializer_range === "number" ? config.raw.initializer_range : 0.02;
      if (spec.initial === "normal")
        view(spec).forEach((_, i, weights) => {
          weights[i] = random.normal(0, spread);
        });
    }
    return new EmbeddedModel({ runtime: this.#runtime, tokenizerFolder, config, specs, vectors, limits: sampler });
  }

  /** On other devices the time to copy a product's matrices would count too. */
  async measurePeak(): Promise<number | null> {
    return this.#isCpu ? await measurePeak(this.#runtime) : null;
  }

  async close(): Promise<void> {
    await this.#runtime.close();
  }
}
