/** Validation over time: every prompt by step, and beside them the responses to one prompt from the newest step on. */
import type { PromptHistory, ValidationTable } from "../api.ts";
import { empty, h, renderOnce, segments, type View } from "./dom.ts";
import { getPromptHistory, getValidation } from "./fetch.ts";
import { promptLine, showCount, showNumber } from "./format.ts";
import { promptCard, responseCard, tokenTip } from "./response-card.ts";
import type { RunData } from "./run-data.ts";

export function validationView(run: RunData): View {
  return new Validation(run);
}

/** All prompts, or those whose newest score is below the highest score of the table. */
type Filter = "all" | "wrong";

class Validation implements View {
  readonly element: HTMLElement;
  readonly #run: RunData;
  readonly #table = h("div", { class: "card" });
  readonly #history = h("div", { class: "history" });
  #shown: ValidationTable | null = null;
  #filter: Filter = "all";
  #key: string | null = null;
  #step: number | null = null;

  constructor(run: RunData) {
    this.#run = run;
    this.element = h("div", { class: "validation" }, [this.#table, this.#history, tokenTip(this.#history)]);
    this.update();
  }

  update(): void {
    getValidation(this.#run.id).then(
      (table) => this.#take(table),
      () => {}, // the next poll shows that the server does not answer
    );
  }

  #take(table: ValidationTable): void {
    const isSame = JSON.stringify(table) === JSON.stringify(this.#shown);
    if (isSame) return;
    this.#shown = table;
    const first = table.prompts[0];
    if (this.#key === null && first !== undefined) this.#key = first.key;
    this.#render();
    void this.#load();
  }

  #render(): void {
    const table = this.#shown;
    if (table === null) return;
    if (table.prompts.length === 0) {
      const text = "They come with `data.val_files` and `trainer.test_freq`, from the first validation on.";
      renderOnce(this.#table, "none", () => [empty("No validation rollouts", text)]);
      return;
    }
    const scores = table.prompts.flatMap((prompt) => prompt.scores).filter((score) => score !== null);
    const range: [number, number] = [Math.min(...scores), Math.max(...scores)];
    const prompts = this.#filter === "all" ? table.prompts : table.prompts.filter((it) => isWrong(it, range));
    const some =
      table.validations > table.steps.length
        ? `${table.steps.length} of ${showCount(table.validations)} validations, evenly spaced`
        : `${table.validations} validations`;
    this.#table.replaceChildren(
      h("header", {}, [
        h("h3", { textContent: "Mean score by prompt and step" }),
        h("span", { class: "at", textContent: some }),
      ]),
      this.#filterChoice(),
      h("div", { class: "scroll" }, [
        h("table", { class: "matrix" }, [
          h("thead", {}, [
            h("tr", {}, [
              h("th", { scope: "col", textContent: "Prompt" }),
              ...table.steps.map((step) => h("th", { scope: "col", textContent: showCount(step) })),
            ]),
          ]),
          h(
            "tbody",
            {},
            prompts.map((prompt) => this.#row(prompt, table.steps, range)),
          ),
        ]),
      ]),
    );
  }

  #filterChoice(): HTMLElement {
    return segments<Filter>(
      "Prompts",
      [
        ["all", "All prompts"],
        ["wrong", "Wrong at the newest step"],
      ],
      {
        chosen: this.#filter,
        onChoose: (filter) => {
          this.#filter = filter;
          this.#render();
        },
      },
    );
  }

  #row(
    { key, prompt, scores }: ValidationTable["prompts"][number],
    steps: readonly number[],
    range: readonly [number, number],
  ): HTMLElement {
    const choose = (step: number | null) => {
      this.#key = key;
      this.#step = step;
      this.#render();
      void this.#load();
    };
    const line = promptLine(prompt);
    return h("tr", { class: key === this.#key ? "chosen" : "" }, [
      h("th", { scope: "row" }, [
        h("button", { type: "button", textContent: line, title: line, on: { click: () => choose(null) } }),
      ]),
      ...scores.map((score, i) => {
        const step = steps[i] ?? 0;
        const text = score === null ? "–" : showNumber(score);
        return h("td", {}, [
          h("button", {
            type: "button",
            class: `cell ${shadeOf(score, range)}`,
            textContent: text,
            title: `step ${showCount(step)}: ${text}`,
            on: { click: () => choose(step) },
          }),
        ]);
      }),
    ]);
  }

  async #load(): Promise<void> {
    const key = this.#key;
    if (key === null) return;
    const history = await getPromptHistory(this.#run.id, key).catch(() => null);
    if (history === null || key !== this.#key) return;
    this.#history.replaceChildren(...historyCards(history, this.#step));
    this.#history.querySelector(".at-step.chosen")?.scrollIntoView({ block: "nearest" });
  }
}

/** Whether the newest score of a prompt is below the highest score of the table. */
function isWrong({ scores }: ValidationTable["prompts"][number], [, high]: readonly [number, number]): boolean {
  const newest = scores.findLast((score) => score !== null) ?? null;
  return newest !== null && newest < high;
}

/** Five shades from the lowest score to the highest. */
function shadeOf(score: number | null, [low, high]: readonly [number, number]): string {
  if (score === null) return "none";
  return `shade${high === low ? 4 : Math.round((4 * (score - low)) / (high - low))}`;
}

function historyCards({ group, at }: PromptHistory, chosen: number | null): HTMLElement[] {
  const steps = [...at].reverse().map(({ step, episodes }) =>
    h("section", { class: step === chosen ? "at-step chosen" : "at-step" }, [
      h("h3", { textContent: `Step ${showCount(step)}` }),
      h(
        "div",
        { class: "responses" },
        episodes.map((episode, i) =>
          responseCard(episode, { title: `Response ${i + 1}`, mark: null, largest: 0, found: "" }),
        ),
      ),
    ]),
  );
  return [promptCard(group), ...steps];
}
