/**
 * One chart: a card with its title, a legend that shows the values under the cursor, and uPlot's canvas.
 *
 * It draws only while it is visible; changes wait until then. Colours come from the style sheet, so a change between
 * light and dark builds the canvas again.
 */
import uPlot from "uplot";
import type { MetricInfo } from "../api.ts";
import { type Axis, onAxis } from "./align.ts";
import type { ChartSpec, Series } from "./catalogue.ts";
import { h, swatch } from "./dom.ts";
import { showCount, showNumber } from "./format.ts";
import type { RunData } from "./run-data.ts";
import { latest, smooth, weightFor } from "./series.ts";

/** What all charts of a view share. */
export type ChartScene = {
  /** The run that is shown, then those it is compared with. */
  readonly runs: readonly RunData[];
  axis(): Axis;
  smoothing(): number;
  zoom(): readonly [number, number] | null;
  onZoom(range: readonly [number, number] | null): void;
};

type Line = { readonly run: number; readonly series: Series; readonly color: string };

const height = 190;
const syncKey = "steps";

export class Chart {
  readonly element: HTMLElement;
  readonly spec: ChartSpec;
  readonly #scene: ChartScene;
  readonly #canvas: HTMLElement;
  readonly #legend: HTMLElement;
  readonly #at: HTMLElement;
  #plot: uPlot | null = null;
  #lines: readonly Line[] = [];
  #values: HTMLElement[] = [];
  #isVisible = false;
  #isStale = true;

  constructor(spec: ChartSpec, scene: ChartScene) {
    this.spec = spec;
    this.#scene = scene;
    this.#canvas = h("div", { class: "plot" });
    this.#legend = h("div", { class: "legend" });
    this.#at = h("span", { class: "at" });
    this.element = h("article", { class: "card chart", attributes: { "data-chart": spec.title } }, [
      h("header", {}, [h("h3", { textContent: spec.title, title: spec.title }), this.#at]),
      h("p", { class: "meaning" }),
      this.#legend,
      this.#canvas,
    ]);
  }

  get names(): string[] {
    return this.spec.series.map(({ name }) => name);
  }

  /** Set whether it is visible. */
  set isVisible(isVisible: boolean) {
    this.#isVisible = isVisible;
    if (isVisible && this.#isStale) this.#draw();
  }

  get isVisible(): boolean {
    return this.#isVisible;
  }

  /** Something it shows has changed. */
  refresh(): void {
    this.#isStale = true;
    if (this.#isVisible) this.#draw();
  }

  /** The zoom has changed. */
  rescale(): void {
    if (this.#plot !== null) this.#applyZoom(this.#plot);
  }

  resize(): void {
    this.#plot?.setSize({ width: this.#width(), height });
  }

  /** Remove the canvas; the next drawing builds it again. */
  dispose(): void {
    this.#plot?.destroy();
    this.#plot = null;
    this.#isStale = true;
  }

  #draw(): void {
    const { runs } = this.#scene;
    const data = this.#data();
    if (data === null) return; // its columns are being loaded
    this.#isStale = false;
    if (this.#plot === null) this.#build(data);
    else {
      this.#plot.setData(data, false);
      this.#applyZoom(this.#plot);
    }
    this.#describe(runs[0]?.infos.get(this.spec.series[0]?.name ?? ""));
    this.#showValues(null);
  }

  /** Steps, then for every line its raw values and its smoothed ones; null while columns are missing. */
  #data(): uPlot.AlignedData | null {
    const { runs, axis, smoothing } = this.#scene;
    const { steps, places } = axis();
    if (!this.names.some((name) => runs.some((run) => run.column(name) !== null))) return null;
    const columns: (number | null)[][] = [];
    for (const { run, series } of this.#linesNow()) {
      const values = runs[run]!.column(series.name) ?? new Float32Array(0);
      const count = values.reduce((sum, value) => sum + (Number.isNaN(value) ? 0 : 1), 0);
      const amount = series.isQuiet ? 0 : weightFor(smoothing(), count);
      const raw = onAxis(values, places[run]!, steps.length);
      columns.push(raw, amount === 0 ? raw : onAxis(smooth(values, amount), places[run]!, steps.length));
    }
    return [[...steps], ...columns];
  }

  #linesNow(): readonly Line[] {
    if (this.#lines.length === 0) {
      const { runs } = this.#scene;
      const colors = palette();
      const lines = runs.flatMap((_, run) => this.spec.series.map((series, i) => ({ run, series, i })));
      let loud = 0;
      this.#lines = lines.map(({ run, series }) => {
        const place = runs.length > 1 ? run : series.isQuiet ? Math.max(0, loud - 1) : loud++;
        return { run, series, color: colors[place % colors.length]! };
      });
    }
    return this.#lines;
  }

  #build(data: uPlot.AlignedData): void {
    const lines = this.#linesNow();
    const look = inkOf(this.element);
    const unit = this.#scene.runs[0]?.infos.get(this.spec.series[0]?.name ?? "")?.unit ?? "";
    const series = lines.flatMap(({ series: { isQuiet }, color }): uPlot.Series[] => {
      const isSmoothed = !isQuiet;
      const strength = isQuiet ? 0.45 : data[0].length > 1000 ? 0.16 : 0.25;
      const faint: uPlot.Series = { stroke: withAlpha(color, strength), width: 1, spanGaps: true };
      const points = { show: false };
      return [
        { ...faint, points },
        isSmoothed ? { stroke: color, width: 1.75, spanGaps: true, points } : { show: false },
      ];
    });
    const font = `11px ${look.font}`;
    const axis = { stroke: look.soft, font, labelFont: font, labelSize: 16, labelGap: 0, ticks: { show: false } };
    const grid = { stroke: look.line, width: 1 };
    this.#plot = new uPlot(
      {
        width: this.#width(),
        height,
        legend: { show: false },
        padding: [8, 10, 0, 0],
        series: [{}, ...series],
        scales: { x: { time: false }, y: { range: (_, min, max) => rangeOf(min, max) } },
        axes: [
          { ...axis, grid: { show: false }, label: "step", size: 26, incrs: stepSizes, values: tickTexts },
          { ...axis, grid, label: unit, size: 46, values: tickTexts },
        ],
        cursor: {
          sync: { key: syncKey, setSeries: false },
          points: { show: false },
          y: false,
          drag: { x: true, y: false, setScale: false },
          bind: { dblclick: () => () => this.#unzoom() },
        },
        hooks: {
          setCursor: [(plot) => this.#showValues(plot.cursor.idx ?? null)],
          setSelect: [(plot) => this.#select(plot)],
        },
      },
      data,
      this.#canvas,
    );
    this.#applyZoom(this.#plot);
  }

  #unzoom(): null {
    this.#scene.onZoom(null);
    return null; // without uPlot's own reaction to a double click
  }

  #select(plot: uPlot): void {
    const { left, width } = plot.select;
    if (width < 4) return;
    plot.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
    this.#scene.onZoom([plot.posToVal(left, "x"), plot.posToVal(left + width, "x")]);
  }

  #applyZoom(plot: uPlot): void {
    const { steps } = this.#scene.axis();
    const [min, max] = this.#scene.zoom() ?? [steps[0] ?? 0, steps.at(-1) ?? 1];
    plot.setScale("x", { min, max: max > min ? max : min + 1 });
  }

  #describe(info: MetricInfo | undefined): void {
    const line = this.element.querySelector(".meaning");
    if (!(line instanceof HTMLElement)) return;
    line.textContent = info?.meaning ?? "";
    line.title = [info?.name, info?.meaning, info?.worry && `When to worry: ${info.worry}`].filter(Boolean).join("\n");
    this.#renderLegend();
  }

  #renderLegend(): void {
    const { runs } = this.#scene;
    const lines = this.#linesNow();
    this.#values = lines.map(() => h("b", { class: "value" }));
    this.#legend.replaceChildren(
      ...lines.map(({ run, series, color }, i) => {
        const label = runs.length > 1 ? (runs[run]?.detail?.summary.name ?? "") : series.label;
        return h("span", { class: "key", title: series.name }, [
          swatch(color, series.isQuiet ? "swatch quiet" : "swatch"),
          h("span", { class: "label", textContent: label }),
          this.#values[i]!,
        ]);
      }),
    );
  }

  /** The values under the cursor, or the last ones. */
  #showValues(index: number | null): void {
    const plot = this.#plot;
    if (plot === null) return;
    this.#at.textContent = index === null ? "" : `step ${showCount(plot.data[0][index] ?? 0)}`;
    for (const [i, element] of this.#values.entries()) {
      const column = plot.data[2 * i + 2] ?? [];
      const value = index === null ? lastOf(column) : column[index];
      element.textContent = value === null || value === undefined ? "–" : showNumber(value);
    }
  }

  #width(): number {
    return Math.max(120, this.#canvas.clientWidth);
  }
}

/** The range of the y axis: a tenth more than the values need, and never so small that ticks overlap. */
function rangeOf(min: number | null, max: number | null): [number, number] {
  if (min === null || max === null) return [0, 1];
  const size = Math.max(Math.abs(min), Math.abs(max));
  if (size === 0) return [-1, 1];
  if (max - min > 1e-5 * size) return uPlot.rangeNum(min, max, 0.1, true) as [number, number]; // of numbers, numbers
  return [min - 0.1 * size, max + 0.1 * size];
}

function lastOf(column: ArrayLike<number | null | undefined>): number | null {
  const value = latest(Array.from(column, (it) => it ?? Number.NaN));
  return Number.isNaN(value) ? null : value;
}

/** Colours of lines, from the style sheet. */
export function palette(): string[] {
  const style = getComputedStyle(document.documentElement);
  return Array.from({ length: 12 }, (_, i) => style.getPropertyValue(`--series-${i}`).trim());
}

/** Colours and font of what is around the lines. */
export function inkOf(element: HTMLElement): { text: string; soft: string; line: string; font: string } {
  const style = getComputedStyle(element);
  const color = (name: string) => style.getPropertyValue(name).trim();
  return { text: color("--text"), soft: color("--soft"), line: color("--line"), font: style.fontFamily };
}

function withAlpha(hex: string, alpha: number): string {
  return `${hex}${Math.round(alpha * 255)
    .toString(16)
    .padStart(2, "0")}`;
}

const tickTexts = (_: uPlot, ticks: readonly number[]): string[] => ticks.map(tickText);

/** Distances between ticks of the step axis, which has whole numbers only: 1, 2, 5, 10, 20, … */
const stepSizes = Array.from({ length: 28 }, (_, i) => [1, 2, 5][i % 3]! * 10 ** Math.floor(i / 3));

/** Ticks are round already: only their size is shortened. */
function tickText(tick: number): string {
  const size = Math.abs(tick);
  if (size >= 1e6) return `${Number((tick / 1e6).toPrecision(3))}M`;
  if (size >= 1000) return `${Number((tick / 1000).toPrecision(3))}k`;
  if (size > 0 && size < 0.001) return tick.toExponential(1).replace(".0e", "e");
  return String(Number(tick.toPrecision(6)));
}
