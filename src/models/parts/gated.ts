/** The gated feed-forward: `down(activation(gate(x)) * up(x))`. */
import type { Activation } from "../../graph/node.ts";
import * as o from "../../graph/ops.ts";
import { UserError } from "../../util/errors.ts";
import { type ConfigFile, costOf, type Kind, linear } from "./part.ts";

export type GatedTraits = {
  readonly kind: "gated";
  readonly activationKey: "hidden_act" | "hidden_activation";
  /** The activation when its key is absent. */
  readonly activation: string;
  /** The first Gemma checkpoints say `gelu` and mean its tanh approximation. */
  readonly geluIsTanh: boolean;
  /** `config`: there are biases if `mlp_bias` is true. */
  readonly bias: "config" | "never";
};

export type Gated = {
  readonly kind: "gated";
  readonly width: number;
  readonly hidden: number;
  readonly activation: Activation;
  readonly hasBias: boolean;
};

export const gated: Kind<GatedTraits, Gated> = {
  read: (traits, file) => ({
    kind: "gated",
    width: file.fields.hidden_size,
    hidden: file.fields.intermediate_size,
    activation: activationOf(traits, file),
    hasBias: traits.bias === "config" && (file.fields.mlp_bias ?? false),
  }),

  parameters: ({ width, hidden, hasBias }) => [
    ...linear("gate", "mlp.gate_proj", [hidden, width], hasBias),
    ...linear("up", "mlp.up_proj", [hidden, width], hasBias),
    ...linear("down", "mlp.down_proj", [width, hidden], hasBias),
  ],

  build: (x, { activation }, at) => ({
    out: at.linear("down", o.gated(at.linear("gate", x), at.linear("up", x), activation)),
  }),

  cache: () => [],

  cost: ({ width, hidden, activation }, context) =>
    costOf(
      2 * 3 * width * hidden,
      {
        limit: 4 * width + 6 * hidden,
        train: hidden * (activation === "geluTanh" ? 7.3 : 4.8),
        forward: 2 * hidden,
        prefill: 3 * hidden,
      },
      context,
    ),
};

/** transformers' names of the activations. */
const activations: Record<string, Activation | undefined> = {
  silu: "silu",
  swish: "silu",
  gelu: "gelu",
  gelu_python: "gelu",
  gelu_pytorch_tanh: "geluTanh",
  gelu_python_tanh: "geluTanh",
  gelu_new: "geluTanh",
  gelu_fast: "geluTanh",
};

function activationOf(traits: GatedTraits, { fields, source }: ConfigFile): Activation {
  const name = fields[traits.activationKey] ?? traits.activation;
  const activation = Object.hasOwn(activations, name) ? activations[name] : undefined;
  if (activation === undefined) {
    const known = Object.keys(activations).join(", ");
    throw new UserError(`${source}: \`${traits.activationKey}\` is "${name}". Supported are ${known}.`);
  }
  return activation === "gelu" && traits.geluIsTanh ? "geluTanh" : activation;
}
