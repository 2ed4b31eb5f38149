/**
 * The rollouts of a run: a step, one of its prompts, and the responses to it side by side.
 *
 * While a run is live and no step was chosen, the newest step is shown.
 */
import type { RolloutGroup, RolloutKind, Rollouts } from "../../run/rollouts.ts";
import type { RolloutIndex, SearchHit } from "../api.ts";
import { type Child, empty, h, renderOnce, segments, type View } from "./dom.ts";
import { getRolloutIndex, getRollouts } from "./fetch.ts";
import { promptLine, showCount, showNumber } from "./format.ts";
import { promptCard, responseCard, tokenTip } from "./response-card.ts";
import { RolloutSearch } from "./rollout-search.ts";
import type { RunData } from "./run-data.ts";
import { largestOf, type Order, orderByScore } from "./token-levels.ts";

type Colour = "plain" | "advantage" | "surprise" | "entropy";

/** Kept while the page is open, in every view. */
const settings: { colour: Colour; order: Order } = { colour: "advantage", order: "sampled" };

export function rolloutsView(run: RunData): View {
  return new RolloutsBrowser(run);
}

class RolloutsBrowser implements View {
  readonly element: HTMLElement;
  readonly #run: RunData;
  readonly #steps = h("div", { class: "stepper" });
  readonly #groups = h("div", { class: "groups" });
  readonly #group = h("div", { class: "group" });
  /** What an advantage compares a response with. */
  readonly #compared = h("span");
  readonly #search: RolloutSearch;
  #index: RolloutIndex | null = null;
  #kind: RolloutKind = "train";
  /** Null follows the newest. */
  #step: number | null = null;
  #line: Rollouts | null = null;
  #place = 0;

  constructor(run: RunData) {
    this.#run = run;
    this.#search = new RolloutSearch(run.id, {
      onOpen: (hit) => this.#openHit(hit),
      onClear: () => this.#renderGroup(),
    });
    const body = h("div", { class: "rollouts-body" }, [this.#groups, this.#group]);
    this.element = h("div", { class: "rollouts" }, [
      h("div", { class: "toolbar" }, [this.#kindChoice(), this.#steps, this.#search.input]),
      this.#search.results,
      h("div", { class: "toolbar second" }, [this.#colourChoice(), this.#orderChoice(), legendOf(this.#compared)]),
      body,
      tokenTip(body),
    ]);
    this.element.dataset.colour = settings.colour;
    this.update();
  }

  update(): void {
    getRolloutIndex(this.#run.id).then(
      (index) => this.#take(index),
      () => {}, // the next poll shows that the server does not answer
    );
  }

  #take(index: RolloutIndex): void {
    const isFirst = this.#index === null;
    const isCutBack = !isFirst && this.#index?.version !== index.version;
    this.#index = index;
    if (isFirst && index.train.length === 0 && index.val.length > 0) this.#kind = "val";
    if (isCutBack) this.#line = null;
    this.#renderSteps();
    const newest = this.#stepsNow().at(-1);
    const wanted = this.#step ?? newest;
    if (wanted === undefined) this.#renderNothing();
    else if (this.#line?.step !== wanted || this.#line.kind !== this.#kind) void this.#load(wanted);
  }

  #stepsNow(): readonly number[] {
    return this.#index?.[this.#kind] ?? [];
  }

  async #load(step: number): Promise<void> {
    const kind = this.#kind;
    try {
      const line = await getRollouts(this.#run.id, kind, step);
      if (kind !== this.#kind) return; // the user has chosen another kind meanwhile
      this.#line = line;
      this.#place = Math.min(this.#place, Math.max(0, line.groups.length - 1));
      this.#render();
    } catch (error) {
      this.#groups.replaceChildren();
      this.#group.replaceChildren(empty("Not readable", error instanceof Error ? error.message : String(error)));
    }
  }

  /** Show a step; if it is the newest, newer steps will be shown as they come. */
  #goTo(step: number): void {
    this.#step = step === this.#stepsNow().at(-1) ? null : step;
    this.#renderSteps();
    void this.#load(step);
  }

  #kindChoice(): HTMLElement {
    return segments<RolloutKind>(
      "Kind",
      [
        ["train", "Training"],
        ["val", "Validation"],
      ],
      {
        chosen: this.#kind,
        onChoose: (kind) => {
          this.#kind = kind;
          this.#step = null;
          this.#place = 0;
          if (this.#index !== null) this.#take(this.#index);
        },
      },
    );
  }

  #colourChoice(): HTMLElement {
    return segments<Colour>(
      "Colour tokens by",
      [
        ["plain", "Plain"],
        ["advantage", "Advantage"],
        ["surprise", "Log-prob"],
        ["entropy", "Entropy"],
      ],
      {
        chosen: settings.colour,
        onChoose: (colour) => {
          settings.colour = colour;
          this.element.dataset.colour = colour;
        },
      },
    );
  }

  #orderChoice(): HTMLElement {
    const options: readonly (readonly [Order, string])[] = [
      ["sampled", "As sampled"],
      ["best", "Best first"],
      ["worst", "Worst first"],
      ["extremes", "Best and worst only"],
    ];
    const select = h(
      "select",
      {
        attributes: { "aria-label": "Order of responses" },
        on: {
          change: () => {
            settings.order = options.find(([value]) => value === select.value)?.[0] ?? "sampled";
            this.#renderGroup();
          },
        },
      },
      options.map(([value, textContent]) => h("option", { value, textContent, selected: value === settings.order })),
    );
    return select;
  }

  #renderSteps(): void {
    const steps = this.#stepsNow();
    const at = this.#step === null ? steps.length - 1 : steps.indexOf(this.#step);
    renderOnce(this.#steps, JSON.stringify([this.#kind, steps.length, at]), () => this.#stepControls(steps, at));
  }

  #stepControls(steps: readonly number[], at: number): Child[] {
    if (steps.length === 0) return [];
    const label = h("output", { textContent: `step ${showCount(steps[at] ?? 0)}` });
    const slider = h("input", {
      type: "range",
      min: "0",
      max: String(steps.length - 1),
      step: "1",
      value: String(at),
      attributes: { "aria-label": "Step" },
      on: {
        input: () => {
          label.textContent = `step ${showCount(steps[Number(slider.value)] ?? 0)}`;
        },
        change: () => this.#goTo(steps[Number(slider.value)] ?? 0),
      },
    });
    const jump = (text: string, to: number, name: string) =>
      h("button", {
        type: "button",
        textContent: text,
        disabled: to === at || to < 0 || to >= steps.length,
        title: name,
        attributes: { "aria-label": name },
        on: { click: () => this.#goTo(steps[to] ?? 0) },
      });
    return [
      jump("«", 0, "First step"),
      jump("‹", at - 1, "Step before"),
      slider,
      jump("›", at + 1, "Next step"),
      jump("»", steps.length - 1, "Newest step"),
      label,
    ];
  }

  #renderNothing(): void {
    const isOther = (this.#index?.train.length ?? 0) + (this.#index?.val.length ?? 0) > 0;
    this.#groups.replaceChildren();
    this.#group.replaceChildren(
      empty(
        "No rollouts",
        isOther
          ? "There are none of this kind; choose the other one above."
          : "This run has written no rollouts.jsonl. Runs of `trainyard ppo` do, from their first step on.",
      ),
    );
  }

  #render(): void {
    const groups = this.#line?.groups ?? [];
    this.#groups.replaceChildren(
      ...groups.map((group, place) => {
        const attributes = { "aria-pressed": String(place === this.#place) };
        const choose = () => {
          this.#place = place;
          this.#render();
        };
        return h("button", { type: "button", class: "group-pick", attributes, on: { click: choose } }, [
          h("span", { class: "text", textContent: promptLine(group.prompt) }),
          scoreStrip(group),
        ]);
      }),
    );
    this.#renderGroup();
  }

  #renderGroup(): void {
    const group = this.#line?.groups[this.#place];
    if (group === undefined) {
      this.#group.replaceChildren(empty("No prompts", "This step has logged none."));
      return;
    }
    const scores = group.episodes.map(({ score }) => score);
    const [best, worst] = extremesOf(scores);
    const largest = largestOf(group.episodes.map(({ advantages }) => advantages));
    this.#compared.textContent = group.episodes.length > 1 ? "better than its group" : "better than expected";
    const cards = orderByScore(scores, settings.order).map((place) =>
      responseCard(group.episodes[place]!, {
        title: `Response ${place + 1}`,
        largest,
        found: this.#search.text,
        mark: place === best ? "best" : place === worst ? "worst" : null,
      }),
    );
    this.#group.replaceChildren(promptCard(group), h("div", { class: "responses" }, cards));
  }

  #openHit({ step, kind, group }: SearchHit): void {
    this.#kind = kind;
    const value = (button: Element) => (button instanceof HTMLElement ? button.dataset.value : undefined);
    for (const button of this.element.querySelectorAll('[aria-label="Kind"] button'))
      button.setAttribute("aria-pressed", String(value(button) === kind));
    this.#place = group;
    this.#goTo(step);
  }
}

/** The places of the highest and the lowest score; none if all are equal. */
function extremesOf(scores: readonly (number | null)[]): [number | null, number | null] {
  const [best, worst] = orderByScore(scores, "extremes");
  const isOne = best === undefined || worst === undefined || scores[best] === scores[worst];
  return isOne ? [null, null] : [best, worst];
}

/** The scores of a group as dots from the lowest to the highest, and their mean. */
function scoreStrip({ episodes }: RolloutGroup): HTMLElement {
  const scores = episodes.map(({ score }) => score).filter((score) => score !== null);
  const low = Math.min(...scores);
  const span = Math.max(...scores) - low;
  const mean = scores.reduce((sum, score) => sum + score, 0) / scores.length;
  const dots = scores.map((score) => h("i", { class: span === 0 ? "even" : score - low > span / 2 ? "high" : "low" }));
  return h("span", { class: "strip" }, [
    h("span", { class: "dots" }, dots.slice(0, 16)),
    h("b", { textContent: scores.length === 0 ? "–" : showNumber(mean) }),
  ]);
}

/** What the colours mean; the style sheet shows the one that is chosen. */
function legendOf(compared: HTMLElement): HTMLElement {
  const scale = (name: string, from: string, classes: readonly string[], to: Child) =>
    h("span", { class: `scale ${name}` }, [from, ...classes.map((it) => h("i", { class: it })), to]);
  return h("div", { class: "scales" }, [
    scale("advantage", "worse", ["down4", "down2", "none", "up2", "up4"], compared),
    scale("surprise", "sure", ["p0", "p1", "p2", "p3", "p4", "p5"], "surprising"),
    scale("entropy", "no choice", ["e0", "e1", "e2", "e3", "e4", "e5"], "many choices"),
  ]);
}
