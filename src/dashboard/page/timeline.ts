/**
 * The timeline: what each step spent its time on. All steps as stacked bars, one step in full, and a table of means.
 */
import { inkOf, palette } from "./chart.ts";
import { empty, h, swatch, type View } from "./dom.ts";
import { showCount, showSeconds, showShare } from "./format.ts";
import { bucketRows, meanPhases, type Phase, phasesOf, stepTimer } from "./phases.ts";
import type { RunData } from "./run-data.ts";

const height = 220;
const axisWidth = 48;
const axisHeight = 22;

/** Neighbouring rows that share a bar, and the mean seconds of each phase in them. */
type Bars = {
  readonly key: string;
  readonly buckets: readonly (readonly [number, number])[];
  readonly means: readonly (readonly number[])[];
};

export function timelineView(run: RunData): View {
  return new Timeline(run);
}

class Timeline implements View {
  readonly element: HTMLElement;
  readonly #run: RunData;
  readonly #canvas = h("canvas", { class: "bars", attributes: { role: "img", "aria-label": "Seconds of each step" } });
  readonly #legend = h("div", { class: "legend" });
  readonly #step = h("div", { class: "card step-card" });
  readonly #table = h("div", { class: "card" });
  readonly #resized: ResizeObserver;
  readonly #scheme = matchMedia("(prefers-color-scheme: dark)");
  #bars: Bars = { key: "", buckets: [], means: [] };
  /** The row that is shown in full; null for the last one. */
  #row: number | null = null;
  #isPinned = false;

  constructor(run: RunData) {
    this.#run = run;
    this.element = h("div", { class: "timeline" }, [
      h("section", { class: "card" }, [
        h("header", {}, [
          h("h3", { textContent: "Seconds per step" }),
          h("span", { class: "at", textContent: "point at a step; click to keep it" }),
        ]),
        this.#legend,
        this.#canvas,
      ]),
      this.#step,
      this.#table,
    ]);
    this.#canvas.addEventListener("pointermove", (event) => this.#point(event.offsetX));
    this.#canvas.addEventListener("pointerleave", () => this.#unpoint());
    this.#canvas.addEventListener("click", (event) => {
      this.#isPinned = !this.#isPinned;
      this.#point(event.offsetX, true);
    });
    this.#resized = new ResizeObserver(() => this.#draw());
    this.#resized.observe(this.#canvas);
    this.#scheme.addEventListener("change", this.#onScheme);
    this.update();
  }

  readonly #onScheme = () => this.#render();

  update(): void {
    const names = [...this.#phases().map(({ name }) => name), stepTimer];
    this.#run.need(names).then(
      () => this.#render(),
      () => {}, // the next poll shows that the server does not answer
    );
    this.#render();
  }

  dispose(): void {
    this.#resized.disconnect();
    this.#scheme.removeEventListener("change", this.#onScheme);
  }

  #phases(): Phase[] {
    return phasesOf(this.#run.names);
  }

  #render(): void {
    this.#draw();
    this.#renderLegend();
    this.#renderStep();
    this.#renderTable();
  }

  #labels(): string[] {
    return [...this.#phases().map(({ label }) => label), "Other"];
  }

  #renderLegend(): void {
    const colors = this.#colors();
    const keys = this.#labels().map((label, i) =>
      h("span", { class: "key" }, [swatch(colors[i]!), h("span", { class: "label", textContent: label })]),
    );
    this.#legend.replaceChildren(...keys);
  }

  #colors(): string[] {
    const colors = palette();
    return [...this.#phases().map(({ color }) => colors[color % colors.length]!), inkOf(this.element).line];
  }

  #columns(): (Float32Array | null)[] {
    return [...this.#phases().map(({ name }) => name), stepTimer].map((name) => this.#run.column(name));
  }

  /** Seconds of each phase, the mean over some rows. */
  #meanOf(rows: readonly [number, number]): number[] {
    return meanPhases(this.#columns(), rows);
  }

  /** The bars that fit the width, computed again only when rows or width have changed. */
  #barsOf(width: number): Bars {
    const columns = this.#columns();
    const rows = columns.at(-1)?.length ?? 0;
    const key = `${this.#run.detail?.version} ${columns.map((column) => column?.length).join()} ${width}`;
    if (this.#bars.key !== key) {
      const buckets = bucketRows(0, rows, Math.max(1, Math.floor(width / 4)));
      this.#bars = { key, buckets, means: buckets.map((bucket) => meanPhases(columns, bucket)) };
    }
    return this.#bars;
  }

  #draw(): void {
    const width = this.#canvas.clientWidth;
    const context = this.#canvas.getContext("2d");
    if (context === null || width === 0) return;
    const ratio = devicePixelRatio;
    this.#canvas.width = width * ratio;
    this.#canvas.height = height * ratio;
    context.scale(ratio, ratio);
    const { buckets, means } = this.#barsOf(width - axisWidth - 8);
    const most = means.reduce((top, parts) => Math.max(top, total(parts)), 0);
    this.#drawAxes(context, width, most);
    const colors = this.#colors();
    const slot = (width - axisWidth - 8) / Math.max(1, buckets.length);
    const scale = (height - axisHeight - 10) / (most || 1);
    for (const [i, parts] of means.entries()) {
      let bottom = height - axisHeight;
      for (const [part, seconds] of parts.entries()) {
        const size = seconds * scale;
        context.fillStyle = colors[part]!;
        context.fillRect(axisWidth + i * slot, bottom - size, Math.max(1, slot - (slot > 5 ? 1 : 0)), size);
        bottom -= size;
      }
    }
    this.#markStep(context, slot);
  }

  #drawAxes(context: CanvasRenderingContext2D, width: number, most: number): void {
    const ink = inkOf(this.element);
    context.font = `11px ${ink.font}`;
    context.textBaseline = "middle";
    const step = niceStep(most / 5);
    for (let tick = 0; tick <= most; tick += step) {
      const y = height - axisHeight - (tick / (most || 1)) * (height - axisHeight - 10);
      context.fillStyle = ink.line;
      context.fillRect(axisWidth, Math.round(y), width - axisWidth - 8, 1);
      context.fillStyle = ink.soft;
      context.textAlign = "right";
      context.fillText(tick === 0 ? "0" : showSeconds(tick), axisWidth - 6, y);
      if (step === 0) break;
    }
    const { steps } = this.#run;
    context.textBaseline = "alphabetic";
    for (const [share, align] of [
      [0, "left"],
      [0.5, "center"],
      [1, "right"],
    ] as const) {
      const value = steps[Math.round(share * (steps.length - 1))];
      if (value === undefined) continue;
      context.textAlign = align;
      const text = share === 0 ? `step ${showCount(value)}` : showCount(value);
      context.fillText(text, axisWidth + share * (width - axisWidth - 8), height - 5);
    }
  }

  #markStep(context: CanvasRenderingContext2D, slot: number): void {
    if (this.#row === null) return;
    const row = this.#row;
    const at = this.#bars.buckets.findIndex(([first, last]) => first <= row && row <= last);
    if (at < 0) return;
    context.fillStyle = inkOf(this.element).text;
    context.fillRect(axisWidth + (at + 0.5) * slot - 0.75, 4, 1.5, height - axisHeight - 4);
  }

  #point(x: number, isClick = false): void {
    if (this.#isPinned && !isClick) return;
    const { buckets } = this.#bars;
    const width = this.#canvas.clientWidth - axisWidth - 8;
    const at = Math.floor(((x - axisWidth) / width) * buckets.length);
    const bucket = buckets[Math.min(buckets.length - 1, Math.max(0, at))];
    this.#row = bucket?.[0] ?? null;
    this.#draw();
    this.#renderStep();
  }

  #unpoint(): void {
    if (this.#isPinned) return;
    this.#row = null;
    this.#draw();
    this.#renderStep();
  }

  /** One step as a bar whose pieces follow each other as they ran. */
  #renderStep(): void {
    const rows = this.#run.column(stepTimer)?.length ?? 0;
    if (rows === 0) {
      this.#step.replaceChildren(empty("No timings yet", "They come with the first step that ends."));
      return;
    }
    const row = Math.min(this.#row ?? rows - 1, rows - 1);
    const parts = this.#meanOf([row, row]);
    const sum = total(parts) || 1;
    const colors = this.#colors();
    const labels = this.#labels();
    let start = 0;
    const lanes = parts.flatMap((seconds, i) => {
      const from = start;
      start += seconds;
      if (seconds <= 0) return [];
      const bar = swatch(colors[i]!, "bar");
      bar.style.marginLeft = `${(100 * from) / sum}%`;
      bar.style.width = `${Math.max(0.3, (100 * seconds) / sum)}%`;
      return [
        h("div", { class: "lane" }, [
          h("span", { class: "label", textContent: labels[i]! }),
          h("span", { class: "track" }, [bar]),
          h("span", { class: "value", textContent: showSeconds(seconds) }),
        ]),
      ];
    });
    const step = showCount(this.#run.steps[row] ?? 0);
    this.#step.replaceChildren(
      h("header", {}, [
        h("h3", { textContent: `Step ${step}` }),
        h("span", { class: "at", textContent: `${showSeconds(total(parts))}${this.#isPinned ? " · kept" : ""}` }),
      ]),
      ...lanes,
    );
  }

  #renderTable(): void {
    const rows = this.#run.column(stepTimer)?.length ?? 0;
    if (rows === 0) return;
    const all = this.#meanOf([0, rows - 1]);
    const recent = this.#meanOf([Math.max(0, rows - 20), rows - 1]);
    const sum = total(all) || 1;
    const colors = this.#colors();
    const labels = [...this.#phases().map(({ label, name }) => [label, name] as const), ["Other", ""] as const];
    const body = labels.map(([label, name], i) => {
      return h("tr", { title: name }, [
        h("th", { scope: "row" }, [swatch(colors[i]!), label]),
        h("td", { textContent: showShare(all[i]! / sum) }),
        h("td", { textContent: showSeconds(all[i]!) }),
        h("td", { textContent: showSeconds(recent[i]!) }),
      ]);
    });
    this.#table.replaceChildren(
      h("header", {}, [h("h3", { textContent: "Where the time goes" })]),
      h("table", { class: "numbers" }, [
        h("thead", {}, [
          h(
            "tr",
            {},
            ["Phase", "Share", "Mean", "Last 20"].map((it) => h("th", { scope: "col", textContent: it })),
          ),
        ]),
        h("tbody", {}, body),
      ]),
    );
  }
}

const total = (parts: readonly number[]): number => parts.reduce((sum, part) => sum + part, 0);

/** 1, 2 or 5 times a power of ten, at least `size`. */
function niceStep(size: number): number {
  if (size <= 0) return 0;
  const power = 10 ** Math.floor(Math.log10(size));
  return [1, 2, 5, 10].map((factor) => factor * power).find((step) => step >= size) ?? size;
}
