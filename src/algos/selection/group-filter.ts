/**
 * Which groups, the responses to one prompt, are trained on. Others are replaced by sampling more prompts: DAPO's dynamic
 * sampling (arXiv:2503.14476).
 */
import { bool, field, int, name, nullable, type Resolved } from "../../util/field.ts";

/** A filter of groups as a value. */
export type GroupFilter = {
  /** The column of the reward that it looks at; `score` is the score itself. */
  readonly column: string;
  /** The config key that names the column. */
  readonly columnKey: string;
  /** Rounds of sampling for one step after which a run is stopped; 0 for no limit. */
  readonly maxRounds: number;
  /** The config key of that limit. */
  readonly maxRoundsKey: string;
  /** Whether a group is trained on, from the column's values of its responses that have a score. */
  keeps(columns: readonly unknown[]): boolean;
};

/** Keys of `algorithm.filter_groups`. */
export const filterGroupsFields = {
  enable: field(bool, false, "Drop groups whose responses all score alike and sample others in their place."),
  metric: field(nullable(name), null, "Reward column that is compared, such as acc; null for the score itself."),
  max_num_gen_batches: field(int(0), 0, "Stop after this many rounds of sampling for one step; 0 for no limit."),
};

/** Keep the groups whose responses do not all score alike. */
export function differingGroups(settings: Resolved<typeof filterGroupsFields>): GroupFilter {
  return {
    column: settings.metric ?? "score",
    columnKey: "algorithm.filter_groups.metric",
    maxRounds: settings.max_num_gen_batches,
    maxRoundsKey: "algorithm.filter_groups.max_num_gen_batches",
    keeps: (columns) => columns.some((column) => column !== columns[0]),
  };
}
