/** What a row of the metric table is. */

export type MetricRow = {
  readonly name: string;
  readonly meaning: string;
  /** Of one number; "" for a plain ratio or count. */
  readonly unit: string;
  /** Which value or trend needs a look, and at what; "" when none does. */
  readonly worry: string;
};

export type MetricSection = {
  readonly title: string;
  /** The file under src/ that makes these metrics. */
  readonly from: string;
  readonly rows: readonly MetricRow[];
};

export const row = (name: string, unit: string, meaning: string, worry = ""): MetricRow => ({
  name,
  unit,
  meaning,
  worry,
});
