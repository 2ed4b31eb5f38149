/**
 * Every metric that a run logs: what it means, its unit, and when to worry. The names are verl's, letter for letter.
 *
 * docs/metrics.md is made from this table, and a test compares it with what the functions of this room return. A name
 * may be a pattern: `{mean,max,min}` is one of these, `{section}` is anything. What has nothing to count in a step (no
 * episode, no token) is absent from that step.
 */

import { correctionSections } from "./table-correction.ts";
import type { MetricSection } from "./table-row.ts";
import { runMetrics } from "./table-run.ts";
import { trainingMetrics } from "./table-training.ts";

/** Every section, in the order of docs/metrics.md. */
export const metricTable: readonly MetricSection[] = [...trainingMetrics, ...correctionSections, ...runMetrics];
