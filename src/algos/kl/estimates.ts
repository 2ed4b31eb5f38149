/**
 * Estimates of KL(policy ‖ reference) per token from two log-probs, by the names of `kl_loss_type` and `kl_penalty`.
 *
 * k1, k2, k3 are Schulman's estimators (http://joschu.net/blog/kl-approx.html); verl's older names are `kl`, `mse` and
 * `low_var_kl`. A name that ends in `+` has the value of its estimate and the gradient of k2, which is the right
 * gradient of the KL. No estimate has config keys of its own.
 *
 * Departure from verl: the `+` names work for either version (0.7 refuses them).
 */
import type { Node } from "../../graph/node.ts";
import * as o from "../../graph/ops.ts";
import { UserError, unknownName } from "../../util/errors.ts";
import type { Registered } from "../../util/field.ts";
import { registryOf } from "../registry.ts";

/** A KL estimate as a value, in two forms that must agree; `d` is log-prob minus reference log-prob. */
export type KlEstimate = {
  readonly name: string;
  readonly paper?: string;
  /** With a gradient, for the loss. */
  traced(d: Node): Node;
  /** As a number, for the reward. */
  plain(d: number): number;
};

const schulman = "http://joschu.net/blog/kl-approx.html";

const k1: KlEstimate = { name: "k1", paper: schulman, traced: (d) => d, plain: (d) => d };

const k2: KlEstimate = {
  name: "k2",
  paper: schulman,
  traced: (d) => o.mul(o.square(d), 0.5),
  plain: (d) => 0.5 * d * d,
};

/** e^-d + d - 1, with verl's bounds on exponent and result; beyond them there is no gradient. */
const k3: KlEstimate = {
  name: "k3",
  paper: schulman,
  traced(d) {
    const e = o.clamp(o.neg(d), -20, 20);
    return o.clamp(o.sub(o.sub(o.exp(e), e), 1), -10, 10);
  },
  plain(d) {
    const e = Math.min(Math.max(-d, -20), 20);
    return Math.min(Math.exp(e) - e - 1, 10);
  },
};

const abs: KlEstimate = { name: "abs", traced: o.abs, plain: Math.abs };

const builtIn: readonly KlEstimate[] = [
  { ...k1, name: "kl" },
  k1,
  abs,
  { ...k2, name: "mse" },
  k2,
  { ...k3, name: "low_var_kl" },
  k3,
];

const registry = registryOf(builtIn, { what: "a KL estimate", subject: "The KL kind", shared: [] });

type BuiltIn = "kl" | "k1" | "abs" | "mse" | "k2" | "low_var_kl" | "k3";
/** The names of ours, for typed configs; `registry.test.ts` compares them with the values. */
export type KlName = BuiltIn | `${BuiltIn}+`;

/** Every name that `kl_penalty` and `kl_loss_type` take. */
export const klNames = (): string[] => registry.names().flatMap((name) => [name, `${name}+`]);

/** Make an estimate of one's own available as `kl_penalty` and `kl_loss_type`, also with a `+`. */
export function registerKlEstimate(estimate: KlEstimate): Registered<KlEstimate> {
  const { name } = estimate;
  if (name === "full" || name.endsWith("+")) {
    throw new UserError(
      `A KL estimate cannot be called "${name}": that name has a meaning already. Choose another one.`,
    );
  }
  registry.register(estimate);
  return estimate as Registered<KlEstimate>; // now it is
}

function findEstimate(kind: string): KlEstimate & { readonly isStraightThrough: boolean } {
  if (kind === "full") {
    throw new UserError(
      'The KL kind "full" needs the whole distribution of policy and reference, and only log-probs of the sampled ' +
        'tokens are known. Use "low_var_kl", or "k1+" in a loss.',
    );
  }
  const isStraightThrough = kind.endsWith("+");
  const base = isStraightThrough ? kind.slice(0, -1) : kind;
  if (!registry.has(base)) throw unknownName("The KL kind", kind, klNames());
  return { ...registry.find(base), isStraightThrough };
}

/** The traced estimate per token. */
export function klPenalty(logprobs: Node, refLogprobs: Node, kind: string): Node {
  const { traced, isStraightThrough } = findEstimate(kind);
  const d = o.sub(logprobs, refLogprobs);
  if (!isStraightThrough) return traced(d);
  const backward = k2.traced(d);
  return o.add(o.sub(backward, o.stopGradient(backward)), o.stopGradient(traced(d)));
}

/** The estimate per token as a plain function of two log-probs. */
export function klEstimate(kind: string): (logprob: number, refLogprob: number) => number {
  const { plain } = findEstimate(kind);
  return (logprob, refLogprob) => plain(logprob - refLogprob);
}
