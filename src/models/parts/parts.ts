/**
 * The kinds of parts that a layer is made of. A new kind is a file in this folder and a row in one of these tables; the
 * types of configs follow from the tables.
 */
import { gated } from "./gated.ts";
import { groupedQuery } from "./grouped-query.ts";
import type { AttentionKind, Kind, Part, PositionScheme } from "./part.ts";
import { rmsNorm } from "./rms-norm.ts";
import { rope } from "./rope.ts";

const attentions = { "grouped-query": groupedQuery };
const feedForwards = { gated };
const norms = { rms: rmsNorm };
const positions = { rope };

type ConfigIn<Row> = Row extends Part<infer Config, never> ? Config : never;
type TraitsIn<Row> = Row extends { read(traits: infer Traits, ...rest: never): unknown } ? Traits : never;
type SchemeIn<Row> = Row extends PositionScheme<infer _, infer Config> ? Config : never;
type RowOf<Table> = Table[keyof Table];

export type Attention = ConfigIn<RowOf<typeof attentions>>;
export type FeedForward = ConfigIn<RowOf<typeof feedForwards>>;
export type Norm = ConfigIn<RowOf<typeof norms>>;
export type Position = SchemeIn<RowOf<typeof positions>>;

/** What a family fixes about a part. */
export type AttentionTraits = TraitsIn<RowOf<typeof attentions>>;
export type FeedForwardTraits = TraitsIn<RowOf<typeof feedForwards>>;
export type NormTraits = TraitsIn<RowOf<typeof norms>>;
export type PositionTraits = TraitsIn<RowOf<typeof positions>>;

type Of<Config> = { readonly kind: Config extends { readonly kind: infer K } ? K : never };

/** The kind of part that a config or a family's traits name. */
export const attentionPart = ({ kind }: Of<Attention>): AttentionKind<AttentionTraits, Attention> => attentions[kind];
export const feedForwardPart = ({ kind }: Of<FeedForward>): Kind<FeedForwardTraits, FeedForward> => feedForwards[kind];
export const normPart = ({ kind }: Of<Norm>): Kind<NormTraits, Norm> => norms[kind];
export const positionScheme = ({ kind }: Of<Position>): PositionScheme<PositionTraits, Position> => positions[kind];
