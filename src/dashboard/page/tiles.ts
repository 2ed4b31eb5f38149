/** The state of a run in six numbers, each with a sparkline of its past. */

import { h, sparkline } from "./dom.ts";
import { showNumber, showShare } from "./format.ts";
import type { RunData } from "./run-data.ts";
import { latest, thin } from "./series.ts";

type Tile = { readonly label: string; readonly pattern: RegExp; readonly show?: (value: number) => string };

const tiles: readonly Tile[] = [
  { label: "Reward", pattern: /^critic\/score\/mean$/ },
  { label: "Loss", pattern: /^train\/loss$/ },
  { label: "Accuracy", pattern: /^train\/accuracy$/ },
  { label: "Validation", pattern: /^val-core\/.+\/acc\/mean@\d+$/ },
  { label: "Validation loss", pattern: /^val\/loss$/ },
  { label: "KL to reference", pattern: /^actor\/(kl_loss|reward_kl_penalty)$/ },
  { label: "Entropy", pattern: /^actor\/entropy$/ },
  { label: "Response length", pattern: /^response_length\/mean$/ },
  { label: "Cut off", pattern: /^response_length\/clip_ratio$/, show: showShare },
  { label: "Tokens per second", pattern: /^perf\/throughput$/ },
];

/** The metrics that the tiles of a run show. */
export const tileNames = (run: RunData): string[] => found(run).map(({ name }) => name);

/** Tiles of the metrics that the run has. */
export function tilesOf(run: RunData): HTMLElement[] {
  return found(run).map(({ label, name, show }) => {
    const values = run.column(name) ?? [];
    return h("div", { class: "tile", title: name }, [
      h("span", { class: "label", textContent: label }),
      h("strong", { textContent: show(latest(values)) }),
      sparkline(thin(values, 40), { width: 120, height: 28 }),
    ]);
  });
}

function found(run: RunData): { label: string; name: string; show: (value: number) => string }[] {
  return tiles.flatMap(({ label, pattern, show = showNumber }) => {
    const name = run.names.find((it) => pattern.test(it));
    return name === undefined ? [] : [{ label, name, show }];
  });
}
