/**
 * The curves of a run, alone or beside others: what matters in sections, everything else by search.
 *
 * Smoothing, zoom and cursor are shared by all charts. A chart is made when it comes near the screen.
 */
import type { Axis } from "./align.ts";
import { joinSteps } from "./align.ts";
import { type ChartSpec, chartsOf, otherNames, searchCharts, splitCharts } from "./catalogue.ts";
import { Chart, type ChartScene } from "./chart.ts";
import { empty, h, renderOnce, type View } from "./dom.ts";
import type { RunData } from "./run-data.ts";
import { tileNames, tilesOf } from "./tiles.ts";
import { warningsPanel } from "./warnings-panel.ts";

/** Kept while the page is open, in every view. */
const settings = { smoothing: 0.6, search: "" };

export function curvesView(runs: readonly RunData[]): View {
  return new Curves(runs);
}

class Curves implements View {
  readonly element: HTMLElement;
  readonly #runs: readonly RunData[];
  readonly #tiles = h("div", { class: "tiles" });
  readonly #warnings = h("div", {});
  readonly #charts = h("div", { class: "sections" });
  readonly #reset: HTMLButtonElement;
  readonly #observer: IntersectionObserver;
  readonly #resized: ResizeObserver;
  readonly #scheme = matchMedia("(prefers-color-scheme: dark)");
  readonly #scene: ChartScene;
  #shown: Chart[] = [];
  #layout = "";
  #axis: { readonly key: string; readonly axis: Axis } | null = null;
  #zoom: readonly [number, number] | null = null;

  constructor(runs: readonly RunData[]) {
    this.#runs = runs;
    this.#scene = {
      runs,
      axis: () => this.#axisNow(),
      smoothing: () => settings.smoothing,
      zoom: () => this.#zoom,
      onZoom: (range) => this.#setZoom(range),
    };
    this.#reset = h("button", {
      type: "button",
      textContent: "Reset zoom",
      hidden: true,
      on: { click: () => this.#setZoom(null) },
    });
    this.#observer = new IntersectionObserver((entries) => this.#onSeen(entries), { rootMargin: "200px" });
    this.#resized = new ResizeObserver(() => {
      for (const chart of this.#shown) chart.resize();
    });
    this.element = h("div", { class: "curves" }, [this.#tiles, this.#warnings, this.#toolbar(), this.#charts]);
    this.#resized.observe(this.#charts);
    this.#scheme.addEventListener("change", this.#onScheme);
    this.update();
  }

  update(): void {
    const [main] = this.#runs;
    if (main === undefined || main.detail === null) return;
    if (this.#runs.length === 1) {
      const { detail } = main;
      this.#tiles.replaceChildren(...tilesOf(main));
      const { warnings, unreadable } = detail;
      const key = JSON.stringify([warnings, unreadable, detail.rows < 20]);
      renderOnce(this.#warnings, key, () => [warningsPanel(detail)]);
    }
    const specs = this.#specs();
    const layout = JSON.stringify(specs);
    if (layout !== this.#layout) {
      this.#layout = layout;
      this.#arrange(specs);
      this.#askFirst();
    }
    for (const chart of this.#shown) chart.refresh();
  }

  dispose(): void {
    this.#observer.disconnect();
    this.#resized.disconnect();
    this.#scheme.removeEventListener("change", this.#onScheme);
    for (const chart of this.#shown) chart.dispose();
  }

  readonly #onScheme = () => {
    const shown = this.#shown;
    for (const chart of shown) chart.dispose();
    this.#arrange(this.#specs());
  };

  #toolbar(): HTMLElement {
    const value = h("output", { textContent: settings.smoothing.toFixed(2) });
    const slider = h("input", {
      type: "range",
      min: "0",
      max: "0.99",
      step: "0.01",
      value: String(settings.smoothing),
      id: "smoothing",
      on: {
        input: () => {
          settings.smoothing = Number(slider.value);
          value.textContent = settings.smoothing.toFixed(2);
          for (const chart of this.#shown) chart.refresh();
        },
      },
    });
    const search = h("input", {
      type: "search",
      placeholder: "Find a metric…",
      value: settings.search,
      id: "metric-search",
      attributes: { "aria-label": "Find a metric" },
      on: {
        input: () => {
          settings.search = search.value;
          this.update();
        },
      },
    });
    return h("div", { class: "toolbar" }, [
      h("label", { class: "slider", htmlFor: "smoothing" }, ["Smoothing", slider, value]),
      search,
      this.#reset,
    ]);
  }

  #names(): string[] {
    return [...new Set(this.#runs.flatMap((run) => run.names))];
  }

  #specs(): ChartSpec[] {
    const names = this.#names();
    if (settings.search.trim() !== "") return searchCharts(names, settings.search);
    const charts = chartsOf(names);
    return this.#runs.length > 1 ? splitCharts(charts) : charts;
  }

  /** Build the sections; charts that are not near the screen stay empty cards. */
  #arrange(specs: readonly ChartSpec[]): void {
    this.#observer.disconnect();
    for (const chart of this.#shown) chart.dispose();
    this.#shown = specs.map((spec) => new Chart(spec, this.#scene));
    const sections = [...new Set(specs.map(({ section }) => section))].map((section) =>
      h("section", {}, [
        h("h2", { textContent: section }),
        h(
          "div",
          { class: "grid" },
          this.#shown.filter(({ spec }) => spec.section === section).map(({ element }) => element),
        ),
      ]),
    );
    this.#charts.replaceChildren(...sections, this.#more(specs));
    for (const chart of this.#shown) this.#observer.observe(chart.element);
  }

  #more(specs: readonly ChartSpec[]): HTMLElement {
    if (settings.search.trim() !== "")
      return specs.length > 0 ? h("div") : empty("No metric found", `No metric has “${settings.search}” in its name.`);
    const others = otherNames(this.#names(), chartsOf(this.#names()));
    if (specs.length === 0 && others.length === 0)
      return empty("No metrics yet", "The first step has not ended. Curves appear here as soon as it has.");
    const look = (name: string) => {
      const search = this.element.querySelector("#metric-search");
      if (search instanceof HTMLInputElement) search.value = name;
      settings.search = name;
      this.update();
      scrollTo({ top: 0 });
    };
    const chips = others.map((name) =>
      h("button", { type: "button", class: "chip", textContent: name, on: { click: () => look(name) } }),
    );
    return h("section", { class: "more" }, [
      h("h2", { textContent: `${others.length} more metrics` }),
      h("div", { class: "chips" }, chips),
    ]);
  }

  #onSeen(entries: readonly IntersectionObserverEntry[]): void {
    const came: Chart[] = [];
    for (const { target, isIntersecting } of entries) {
      const chart = this.#shown.find(({ element }) => element === target);
      if (chart === undefined) continue;
      chart.isVisible = isIntersecting;
      if (isIntersecting) came.push(chart);
    }
    const names = [...new Set(came.flatMap((chart) => chart.names))];
    if (names.length === 0) return;
    this.#ask(names, () => {
      for (const chart of came) chart.refresh();
    });
  }

  /** Load the metrics of the first screen with one request, before its charts are made. */
  #askFirst(): void {
    const [main] = this.#runs;
    const tiles = main !== undefined && this.#runs.length === 1 ? tileNames(main) : [];
    const charts = this.#shown.slice(0, 9);
    this.#ask([...new Set([...tiles, ...charts.flatMap((chart) => chart.names)])], () => {
      if (main !== undefined && this.#runs.length === 1) this.#tiles.replaceChildren(...tilesOf(main));
      for (const chart of charts) chart.refresh();
    });
  }

  /** Load these metrics of every run, and call back if some were missing. */
  #ask(names: readonly string[], onNew: () => void): void {
    Promise.all(this.#runs.map((run) => run.need(names))).then(
      (isNew) => {
        if (isNew.some(Boolean)) onNew();
      },
      () => {}, // the next poll shows that the server does not answer
    );
  }

  /** The steps of all runs; computed again only when a run has more. */
  #axisNow(): Axis {
    const key = this.#runs.map(({ id, steps, detail }) => `${id} ${detail?.version} ${steps.length}`).join();
    if (this.#axis?.key !== key) this.#axis = { key, axis: joinSteps(this.#runs.map(({ steps }) => steps)) };
    return this.#axis.axis;
  }

  #setZoom(range: readonly [number, number] | null): void {
    this.#zoom = range;
    this.#reset.hidden = range === null;
    for (const chart of this.#shown) chart.rescale();
  }
}
