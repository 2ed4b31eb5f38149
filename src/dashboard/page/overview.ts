/** All runs of a folder with their state, and a choice of runs to compare. */
import type { Headline, RunList, RunSummary } from "../api.ts";
import { empty, h, renderOnce, sparkline, type View } from "./dom.ts";
import { showAgo, showCount, showNumber, showSeconds } from "./format.ts";
import { formatRoute } from "./route.ts";

/** What the page keeps about the list. */
type RunsSource = { list(): RunList | null };

export function overviewView(source: RunsSource): View {
  const chosen = new Set<string>();
  const heading = h("div", { class: "title" });
  const table = h("div", { class: "card runs" });
  const compare = h("a", { class: "button primary", hidden: true });
  const filter = h("input", {
    type: "search",
    placeholder: "Find a run…",
    attributes: { "aria-label": "Find a run" },
    on: { input: () => render() },
  });

  const renderCompare = () => {
    const [run, ...others] = chosen;
    compare.hidden = chosen.size < 2;
    compare.textContent = `Compare ${chosen.size} runs`;
    if (run !== undefined) compare.href = formatRoute({ page: "run", run, tab: "curves", others });
  };
  const onChoose = (id: string, isChosen: boolean) => {
    if (isChosen) chosen.add(id);
    else chosen.delete(id);
    renderCompare();
  };

  const rows = new Map<string, RunRow>();
  const rowOf = (run: RunSummary): RunRow => {
    const row = rows.get(run.id) ?? new RunRow(run, onChoose);
    rows.set(run.id, row);
    return row;
  };

  const render = () => {
    const list = source.list();
    if (list === null) return;
    const live = list.runs.filter(({ status }) => status === "live").length;
    const text = `${showCount(list.runs.length)} in ${list.folder}${live > 0 ? `, ${live} live` : ""}`;
    renderOnce(heading, text, () => [h("h1", { textContent: "Runs" }), h("p", { class: "note", textContent: text })]);
    const words = filter.value.toLowerCase();
    const runs = [...list.runs]
      .filter(({ name }) => name.toLowerCase().includes(words))
      .sort((a, b) => Number(b.status === "live") - Number(a.status === "live") || b.updatedAt - a.updatedAt);
    for (const run of runs) rowOf(run).update(run);
    renderOnce(table, JSON.stringify(runs.map(({ id }) => id)), () =>
      runs.length === 0
        ? [empty("No run found", "No run has this in its name.")]
        : [headRow(), ...runs.map((run) => rowOf(run).element)],
    );
  };

  const element = h("div", { class: "overview" }, [heading, h("div", { class: "toolbar" }, [filter, compare]), table]);
  render();
  return { element, update: render };
}

function headRow(): HTMLElement {
  const cells = ["", "Run", "Status", "Progress", "Reward", "Validation", "Per step", "Updated"];
  return h(
    "div",
    { class: "run-row head" },
    cells.map((textContent) => h("span", { textContent })),
  );
}

/** One run: its link and its checkbox stay, its numbers change. */
class RunRow {
  readonly element: HTMLElement;
  readonly #state = h("span", { class: "state" });
  readonly #progress = h("span", { class: "progress-cell" });
  readonly #headline = h("span", { class: "headline" });
  readonly #validation = h("span", { class: "headline" });
  readonly #perStep = h("span", { class: "number per-step" });
  readonly #ago = h("span", { class: "number ago" });

  constructor({ id, name }: RunSummary, onChoose: (id: string, isChosen: boolean) => void) {
    const box = h("input", {
      type: "checkbox",
      attributes: { "aria-label": `Compare ${name}` },
      on: { change: () => onChoose(id, box.checked) },
    });
    const href = formatRoute({ page: "run", run: id, tab: "curves", others: [] });
    this.element = h("div", { class: "run-row", attributes: { "data-run": id } }, [
      h("label", { class: "pick" }, [box]),
      h("a", { class: "name", href }, nameParts(name)),
      this.#state,
      this.#progress,
      this.#headline,
      this.#validation,
      this.#perStep,
      this.#ago,
    ]);
  }

  update(run: RunSummary): void {
    const { stepSeconds, updatedAt } = run;
    this.#state.replaceChildren(statusPill(run));
    this.#progress.replaceChildren(progressBar(run), h("span", { textContent: progressText(run) }));
    this.#headline.replaceChildren(...headlineCells(run.headline));
    this.#validation.replaceChildren(...headlineCells(run.validation));
    this.#perStep.textContent = stepSeconds === null ? "–" : showSeconds(stepSeconds);
    this.#ago.textContent = updatedAt === 0 ? "–" : showAgo(updatedAt, Date.now());
  }
}

/** The folder part of a name is quieter than the run's own. */
export function nameParts(name: string): HTMLElement[] {
  const cut = name.lastIndexOf("/") + 1;
  return [
    h("span", { class: "folder", textContent: name.slice(0, cut) }),
    h("span", { class: "own", textContent: name.slice(cut) }),
  ];
}

function headlineCells(headline: Headline | null): (Node | string)[] {
  if (headline === null) return ["–"];
  return [
    h("span", { class: "caption", textContent: headline.label, title: headline.name }),
    h("b", { class: "number", textContent: showNumber(headline.value) }),
    sparkline(headline.series),
  ];
}

export function statusPill({ status }: RunSummary): HTMLElement {
  return h("span", { class: `pill ${status}` }, [h("i"), status]);
}

export function progressText({ step, total }: RunSummary): string {
  return total === null ? `step ${showCount(step)}` : `${showCount(step)} / ${showCount(total)}`;
}

export function progressBar({ step, total, status }: RunSummary): HTMLElement {
  const share = total === null ? (status === "finished" ? 1 : 0) : Math.min(1, step / total);
  const fill = h("i");
  fill.style.width = `${100 * share}%`;
  return h("span", { class: `progress ${status}` }, [fill]);
}
