/** Text search in a run's rollouts: the field, and the places that were found. */
import type { SearchHit, SearchPage } from "../api.ts";
import { h } from "./dom.ts";
import { getSearch } from "./fetch.ts";
import { showCount, showNumber } from "./format.ts";

/** A search stops after this many matches, until the user asks for more. */
const enoughHits = 40;

type Actions = { onOpen(hit: SearchHit): void; onClear(): void };

export class RolloutSearch {
  readonly input: HTMLInputElement;
  readonly results = h("div", { class: "results", hidden: true });
  readonly #run: string;
  readonly #actions: Actions;
  /** Number of searches so far: an answer to an earlier search is ignored. */
  #searched = 0;

  constructor(run: string, actions: Actions) {
    this.#run = run;
    this.#actions = actions;
    this.input = h("input", {
      type: "search",
      placeholder: "Find text in all rollouts…",
      attributes: { "aria-label": "Find text in all rollouts" },
      on: { change: () => void this.#find() },
    });
    this.input.addEventListener("search", () => void this.#find()); // the button that clears it
  }

  get text(): string {
    return this.input.value;
  }

  /** Look through the rollouts, newest first, until there is enough to show; `found` are the matches so far. */
  async #find(found: readonly SearchHit[] = [], from: number | null = null): Promise<void> {
    const text = this.text;
    const turn = ++this.#searched;
    this.results.hidden = text === "";
    if (text === "") return this.#actions.onClear();
    let hits = found;
    let next = from;
    do {
      const page: SearchPage | null = await getSearch(this.#run, text, next).catch(() => null);
      if (turn !== this.#searched || page === null) return;
      hits = [...hits, ...page.hits];
      next = page.next;
      this.#renderResults(hits, page, next !== null && hits.length < found.length + enoughHits);
    } while (next !== null && hits.length < found.length + enoughHits);
  }

  #renderResults(hits: readonly SearchHit[], { left, next }: SearchPage, isSearching: boolean): void {
    const places = hits.length === 1 ? "1 place" : `${showCount(hits.length)} places`;
    const rest = left === 0 ? "" : isSearching ? ", searching…" : `, ${showCount(left)} earlier lines not searched`;
    const rows = hits.map((hit) => {
      const { step, kind, score, excerpt, at } = hit;
      const end = at + this.text.length;
      const where = hit.episode === null ? "prompt" : `response ${hit.episode + 1}`;
      return h("button", { type: "button", class: "hit-row", on: { click: () => this.#actions.onOpen(hit) } }, [
        h("span", { class: "where", textContent: `${kind} step ${showCount(step)}, ${where}` }),
        h("span", { class: "excerpt" }, [
          excerpt.slice(0, at),
          h("mark", { textContent: excerpt.slice(at, end) }),
          excerpt.slice(end),
        ]),
        h("b", { textContent: score === null ? "" : showNumber(score) }),
      ]);
    });
    this.results.replaceChildren(
      h("header", {}, [
        h("span", { class: "note", textContent: `${places}${rest}` }),
        h("span", { class: "spacer" }),
        isSearching || next === null
          ? null
          : h("button", {
              type: "button",
              textContent: "Search on",
              on: { click: () => void this.#find(hits, next) },
            }),
        h("button", { type: "button", textContent: "Close", on: { click: () => this.#closeResults() } }),
      ]),
      ...rows,
    );
  }

  #closeResults(): void {
    this.input.value = "";
    void this.#find();
  }
}
