/** RMSNorm: `x / rms(x) * weight` along the last axis. */
import * as o from "../../graph/ops.ts";
import { costOf, type Kind, parameter } from "./part.ts";

export type RmsNormTraits = {
  readonly kind: "rms";
  /** The norm multiplies by (offset + weight): with 1 the stored weight is the distance from one (Gemma). */
  readonly offset: 0 | 1;
};

export type RmsNorm = RmsNormTraits & { readonly width: number; readonly eps: number };

export const rmsNorm: Kind<RmsNormTraits, RmsNorm> = {
  read: ({ offset }, { fields }) => ({
    kind: "rms",
    offset,
    width: fields.hidden_size,
    eps: fields.rms_norm_eps ?? 1e-6,
  }),

  parameters: ({ width, offset }) => [parameter("", "weight", [width], 1 - offset)],

  build: (x, { eps, offset }, at) => {
    const weight = at.parameter("");
    return { out: o.rmsNorm(x, offset === 0 ? weight : o.add(weight, offset), eps) };
  },

  cache: () => [],

  // Of the products of a layer, a norm's are too few to count.
  cost: ({ width }, context) => costOf(0, { limit: 0, train: 2 * width, forward: 0, prefill: 0 }, context),
};
