/**
 * What a loss is: a traced function of per-token tensors, as data that any engine can train with.
 *
 * A loss is a list of terms. A term has a name, a weight, the tensors it reads and a traced function for its value;
 * `combineTerms` adds the terms up. A new term is one file that makes a `LossTerm`.
 *
 * Loss and metrics are sums over the batch, so that micro-batches add up to the whole.
 */
import type { Node } from "../../graph/node.ts";
import * as o from "../../graph/ops.ts";
import type { Shape } from "../../graph/shape.ts";
import { invariant, UserError } from "../../util/errors.ts";

/** What a model computes for a token; see `TokenOutputs` of the engine's contract. */
export type HeadName = "logprobs" | "entropy" | "sumPiSquared" | "values" | "scores";

/** A per-token input of a loss by name. `width` is how many numbers a token has of it; a plain name has one. */
export type Extra = string | { readonly name: string; readonly width: number };

/**
 * What a loss is built from. A tensor is [batch, time], or [batch, time, width] for an extra of a width above 1; a
 * scalar is [].
 */
export type LossTensors = Readonly<Record<string, Node>> & { readonly mask: Node };

/** The value of a loss, and its metrics. */
export type LossParts = { readonly loss: Node; readonly metrics?: Readonly<Record<string, Node>> };

/** A loss as data: which outputs and inputs it reads, and how they become a number. */
export type TokenLoss = {
  /** Losses with the same key build the same graph. */
  readonly key: string;
  /** What messages call it; its key where it has no name. */
  readonly name?: string;
  readonly heads: readonly HeadName[];
  /** Which of `TokenRow.extra` it reads. Every row must have them. */
  readonly extra?: readonly Extra[];
  /** Names of numbers given with each batch, such as the token count to divide by. */
  readonly scalars?: readonly string[];
  readonly temperature?: number;
  build(tensors: LossTensors): LossParts;
};

/** One term of a loss. */
export type LossTerm = {
  /** The metric that reports its value; a term called `loss` is reported by the loss alone. */
  readonly name: string;
  /** What the value is multiplied by in the loss. */
  readonly weight: number;
  readonly heads: readonly HeadName[];
  readonly extra?: readonly Extra[];
  readonly scalars?: readonly string[];
  build(tensors: LossTensors): LossParts;
};

/** The loss that is the weighted sum of some terms; `key` must differ wherever they are built differently. */
export function combineTerms(name: string, key: string, terms: readonly LossTerm[]): TokenLoss {
  invariant(terms.length > 0, `the loss ${name} has no term`);
  return {
    key,
    name,
    heads: [...new Set(terms.flatMap(({ heads }) => heads))],
    extra: withoutRepeats(terms.flatMap(({ extra = [] }) => extra)),
    scalars: [...new Set(terms.flatMap(({ scalars = [] }) => scalars))],
    build(tensors) {
      const built = terms.map((term) => term.build(tensors));
      const weighted = built.map(({ loss }, i) => (terms[i]!.weight === 1 ? loss : o.mul(loss, terms[i]!.weight)));
      const measured = built.flatMap(({ loss, metrics = {} }, i) => [
        ...(terms[i]!.name === "loss" ? [] : [[terms[i]!.name, loss] as const]),
        ...Object.entries(metrics),
      ]);
      return {
        loss: weighted.reduce((total, value) => o.add(total, value)),
        metrics: Object.fromEntries(measured),
      };
    },
  };
}

export const extraName = (extra: Extra): string => (typeof extra === "string" ? extra : extra.name);
export const extraWidth = (extra: Extra): number => (typeof extra === "string" ? 1 : extra.width);

/** The shape of an extra on a grid of tokens. */
export function extraShape(grid: Shape, extra: Extra): Shape {
  return extraWidth(extra) === 1 ? grid : [...grid, extraWidth(extra)];
}

/** A sequence with its extras, as an engine gets it. */
type RowWithExtra = {
  readonly ids: ArrayLike<number>;
  readonly extra?: Readonly<Record<string, ArrayLike<number>>>;
};

/** Stop unless every row has all that the loss reads, with `width` numbers for each of its tokens. */
export function checkExtra(rows: readonly RowWithExtra[], loss: TokenLoss): void {
  for (const extra of loss.extra ?? []) rows.forEach((row, i) => void extraOf(row, extra, { loss, row: i }));
}

/** The numbers of one extra of a row, or an error that names it and the loss. */
export function extraOf(
  { ids, extra: given = {} }: RowWithExtra,
  extra: Extra,
  { loss, row }: { readonly loss: TokenLoss; readonly row: number },
): ArrayLike<number> {
  const [name, width] = [extraName(extra), extraWidth(extra)];
  const title = `The loss \`${loss.name ?? loss.key}\` reads \`${name}\` of each token`;
  const values = Object.hasOwn(given, name) ? given[name] : undefined;
  if (values === undefined) {
    const names = Object.keys(given).map((it) => `\`${it}\``);
    throw new UserError(
      `${title}, and row ${row} of the batch has ${names.length === 0 ? "no extra" : `only ${names.join(", ")}`}. ` +
        `Give every row \`extra.${name}\`.`,
    );
  }
  if (values.length === ids.length * width) return values;
  throw new UserError(
    `${title}, and row ${row} of the batch has ${values.length} numbers of it. ` +
      `It has ${ids.length} tokens, so give ${ids.length * width} numbers${width === 1 ? "" : `, ${width} for each`}.`,
  );
}

function withoutRepeats(extras: readonly Extra[]): Extra[] {
  const byName = new Map<string, Extra>();
  for (const extra of extras) {
    const other = byName.get(extraName(extra)) ?? extra;
    invariant(extraWidth(other) === extraWidth(extra), `two terms read \`${extraName(extra)}\` with different widths`);
    byName.set(extraName(extra), other);
  }
  return [...byName.values()];
}
