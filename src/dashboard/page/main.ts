/**
 * The shell: shows the view that the address names, and polls while the page is visible.
 */
import type { RunList, RunSummary } from "../api.ts";
import { palette } from "./chart.ts";
import { configView } from "./config-view.ts";
import { curvesView } from "./curves.ts";
import { h, renderOnce, swatch, type View } from "./dom.ts";
import { getRuns } from "./fetch.ts";
import { showAgo, showSeconds } from "./format.ts";
import { nameParts, overviewView, progressBar, progressText, statusPill } from "./overview.ts";
import { rolloutsView } from "./rollouts-view.ts";
import { formatRoute, parseRoute, type Route, type Tab, tabs } from "./route.ts";
import { RunData } from "./run-data.ts";
import { timelineView } from "./timeline.ts";
import { validationView } from "./validation-view.ts";

type RunRoute = Extract<Route, { page: "run" }>;

const pollMs = 1000;
const idlePollMs = 5000;

const tabNames: Record<Tab, string> = {
  curves: "Curves",
  timeline: "Timeline",
  rollouts: "Rollouts",
  validation: "Validation",
  config: "Config",
};

const views: Record<Tab, (runs: readonly [RunData, ...RunData[]]) => View> = {
  curves: (runs) => curvesView(runs),
  timeline: ([run]) => timelineView(run),
  rollouts: ([run]) => rolloutsView(run),
  validation: ([run]) => validationView(run),
  config: (runs) => configView(runs),
};

const known = new Map<string, RunData>();
const header = {
  title: h("div", { class: "title" }),
  picker: h("div", {}),
  facts: h("div", { class: "facts" }),
  chips: h("div", { class: "chips compared" }),
  nav: h("nav", { class: "tabs", attributes: { "aria-label": "Views of the run" } }),
};
const runHeader = h("div", { class: "run-header", hidden: true }, [
  h("div", { class: "title-row" }, [header.title, header.picker]),
  header.facts,
  header.chips,
  header.nav,
]);
const content = h("main", {});
const crumbs = h("nav", { class: "crumbs", attributes: { "aria-label": "Where" } });
const trouble = h("div", { class: "trouble", hidden: true, attributes: { role: "status" } });

let list: RunList | null = null;
let view: View | null = null;
let route: Route = parseRoute(location.hash);
let shown = "";

document.body.append(
  h("header", { class: "top" }, [
    h("a", { class: "brand", href: "#/" }, [h("img", { src: "/favicon.svg", alt: "" }), "trainyard"]),
    crumbs,
  ]),
  trouble,
  runHeader,
  content,
);

function dataOf(id: string): RunData {
  const data = known.get(id) ?? new RunData(id);
  known.set(id, data);
  return data;
}

/** Show the view that the address names: first with what is loaded already, then with new data. */
async function go(): Promise<void> {
  route = parseRoute(location.hash);
  if (list !== null && runsOf(route).every(({ detail }) => detail !== null)) show();
  await refresh();
  const only = list?.runs.length === 1 ? list.runs[0] : undefined;
  if (route.page === "runs" && only !== undefined) {
    history.replaceState(null, "", formatRoute({ page: "run", run: only.id, tab: "curves", others: [] }));
    route = parseRoute(location.hash);
    await refresh();
  }
  show();
}

/** Request what the page needs next; false if nothing has changed. */
async function refresh(): Promise<boolean> {
  try {
    const runs = runsOf(route);
    const isListed = route.page === "runs" || list === null || pickerIsOpen();
    const [runList, ...news] = await Promise.all([isListed ? getRuns() : list, ...runs.map((run) => run.poll())]);
    list = runList;
    trouble.hidden = true;
    return route.page === "runs" || news.some(Boolean);
  } catch (error) {
    trouble.hidden = false;
    trouble.textContent =
      error instanceof TypeError
        ? "The dashboard does not answer. Is it still running? Trying again."
        : error instanceof Error
          ? error.message
          : String(error);
    return false;
  }
}

function runsOf(at: Route): RunData[] {
  return at.page === "run" ? [at.run, ...at.others.filter((it) => it !== at.run)].map(dataOf) : [];
}

const pickerIsOpen = () => header.picker.querySelector("details[open]") !== null;

/** Build the view of the address, or update the current one. */
function show(hasNews = true): void {
  const key = formatRoute(route);
  renderCrumbs();
  runHeader.hidden = route.page !== "run";
  if (route.page === "run") renderHeader(route);
  if (key === shown && view !== null) {
    if (hasNews) view.update?.();
    return;
  }
  view?.dispose?.();
  shown = key;
  view = build(route);
  content.replaceChildren(...(view === null ? [] : [view.element]));
}

function build(at: Route): View | null {
  if (at.page === "runs") return overviewView({ list: () => list });
  const [run, ...others] = runsOf(at);
  if (run === undefined || run.detail === null) {
    shown = "";
    return null; // the error was shown above
  }
  return views[at.tab]([run, ...others]);
}

function renderCrumbs(): void {
  const isSingle = list?.runs.length === 1;
  const runs = h("a", { href: "#/", textContent: "Runs" });
  const here = route.page === "run" ? [h("span", { textContent: dataOf(route.run).detail?.summary.name ?? "" })] : [];
  const name = here[0]?.textContent ?? "";
  renderOnce(crumbs, `${isSingle} ${name}`, () => [isSingle || name === "" ? null : runs, ...here]);
  document.title = name === "" ? "trainyard" : `${name} · trainyard`;
}

function renderHeader(at: RunRoute): void {
  const detail = dataOf(at.run).detail;
  if (detail === null) return;
  const { summary, warnings } = detail;
  const { title, picker, facts, chips, nav } = header;
  const state = { ...summary, updatedAt: 0 };
  renderOnce(title, JSON.stringify([at.run, state.status, warnings.length]), () => [
    h("h1", {}, nameParts(summary.name)),
    statusPill(summary),
    warnings.length === 0 ? null : warningBadge(at, warnings.length),
  ]);
  const names = (list?.runs ?? []).map(({ name }) => name);
  renderOnce(picker, JSON.stringify([at.run, names]), () => [comparePicker(at)]);
  renderOnce(facts, JSON.stringify(factsOf(summary)), () => [
    progressBar(summary),
    h("span", { textContent: factsOf(summary) }),
  ]);
  const compared = [at.run, ...at.others].map((id) => dataOf(id).detail?.summary.name);
  renderOnce(chips, JSON.stringify([at, compared]), () => comparedChips(at));
  renderOnce(nav, JSON.stringify(at), () => tabs.map((tab) => tabLink(at, tab)));
}

function warningBadge(at: RunRoute, count: number): HTMLElement {
  const href = formatRoute({ ...at, tab: "curves", others: [] });
  return h("a", { class: "pill warned", href, textContent: count === 1 ? "1 warning" : `${count} warnings` });
}

function tabLink(at: RunRoute, tab: Tab): HTMLElement {
  const attributes: Record<string, string> = tab === at.tab ? { "aria-current": "page" } : {};
  return h("a", { href: formatRoute({ ...at, tab }), textContent: tabNames[tab], attributes });
}

function factsOf(summary: RunSummary): string {
  const { step, total, stepSeconds, status, updatedAt } = summary;
  const left = status === "live" && total !== null && stepSeconds !== null ? (total - step) * stepSeconds : null;
  const parts = [
    total === null ? progressText(summary) : `step ${progressText(summary)}`,
    stepSeconds === null ? "" : `${showSeconds(stepSeconds)} per step`,
    left === null || left <= 0 ? "" : `about ${showSeconds(left)} left`,
    updatedAt === 0 ? "" : `updated ${showAgo(updatedAt, Date.now())}`,
  ];
  return parts.filter((part) => part !== "").join(" · ");
}

/** A list of the other runs to compare with this one. */
function comparePicker(at: RunRoute): HTMLElement | null {
  const others = (list?.runs ?? []).filter(({ id }) => id !== at.run);
  if (others.length === 0) return null;
  const boxes = others.map(({ id, name }) => {
    const box = h("input", {
      type: "checkbox",
      checked: at.others.includes(id),
      value: id,
      on: {
        change: () => {
          const now = parseRoute(location.hash);
          if (now.page !== "run") return;
          const next = box.checked ? [...now.others, id] : now.others.filter((it) => it !== id);
          location.hash = formatRoute({ ...now, tab: now.tab === "config" ? "config" : "curves", others: next });
        },
      },
    });
    return h("label", {}, [box, ...nameParts(name)]);
  });
  return h("details", { class: "picker" }, [
    h("summary", { class: "button", textContent: "Compare" }),
    h("div", { class: "popover" }, boxes),
  ]);
}

/** The runs that are compared, each with its colour. */
function comparedChips(at: RunRoute): HTMLElement[] {
  if (at.others.length === 0) return [];
  const colors = palette();
  return [at.run, ...at.others].map((id, i) => {
    const drop = h("a", {
      class: "drop",
      textContent: "×",
      href: formatRoute({ ...at, others: at.others.filter((it) => it !== id) }),
      attributes: { "aria-label": `Leave ${id} out` },
    });
    const name = dataOf(id).detail?.summary.name ?? id;
    return h("span", { class: "chip" }, [swatch(colors[i % colors.length]!), name, i === 0 ? null : drop]);
  });
}

/** Poll: often while a run is live and the page is visible, else seldom. */
async function watch(): Promise<void> {
  for (;;) {
    const isLive =
      route.page === "runs"
        ? (list?.runs.some(({ status }) => status === "live") ?? true)
        : runsOf(route).some(({ detail }) => detail?.summary.status === "live");
    await new Promise((resolve) => setTimeout(resolve, isLive || !trouble.hidden ? pollMs : idlePollMs));
    if (!document.hidden) show(await refresh());
  }
}

addEventListener("hashchange", () => void go());
await go();
await watch();
