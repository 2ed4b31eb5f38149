/**
 * A prompt, and responses to it: each with its score and its tokens, coloured as chosen. Tokens that the policy did not
 * draw (of a tool, a template, a user) are muted, and each turn begins with its role. Text from a run is always inserted
 * as text, never as HTML.
 */
import type { RolloutEpisode, RolloutGroup } from "../../run/rollouts.ts";
import { h } from "./dom.ts";
import { showCount, showNumber, showShare, showValue } from "./format.ts";
import { isDrawn, levelsOf, rolesOf } from "./token-levels.ts";

/** How many tokens are shown at first; a button shows the rest. */
const mostTokens = 1500;
const mostExtras = 6;

type ResponseOptions = {
  readonly title: string;
  readonly mark: "best" | "worst" | null;
  /** The largest advantage of the group, by size. */
  readonly largest: number;
  /** Text to mark; "" for none. */
  readonly found: string;
};

/** The prompt of the responses, with the truth they are compared with. */
export function promptCard({ prompt, truth, source }: Omit<RolloutGroup, "episodes">): HTMLElement {
  return h("article", { class: "card prompt" }, [
    h("header", {}, [
      h("h3", { textContent: "Prompt" }),
      h("span", { class: "spacer" }),
      h("span", { class: "tag", textContent: source }),
    ]),
    h("pre", { textContent: prompt }),
    truth === null || truth === undefined
      ? null
      : h("p", { class: "truth" }, [h("span", { textContent: "Truth" }), h("code", { textContent: showValue(truth) })]),
  ]);
}

/** One response. */
export function responseCard(episode: RolloutEpisode, options: ResponseOptions): HTMLElement {
  const { title, mark } = options;
  const { score, extra, tokens } = episode;
  const advantage = (episode.advantages ?? []).find((value) => value !== null);
  const tags = [
    ...(advantage === undefined || advantage === null ? [] : [`advantage ${showNumber(advantage)}`]),
    `${showCount(tokens.length)} tokens`,
    ...Object.entries(extra)
      .filter(([name]) => name !== "score")
      .slice(0, mostExtras)
      .map(([name, value]) => `${name} ${showValue(value).slice(0, 60)}`),
  ];
  return h("article", { class: `card response ${mark ?? ""}` }, [
    h("header", {}, [
      h("h3", { textContent: title }),
      mark === null ? null : h("span", { class: `pill ${mark}`, textContent: mark }),
      h("span", { class: "spacer" }),
      h("b", { class: "score", textContent: score === null ? "no score" : showNumber(score) }),
    ]),
    h(
      "div",
      { class: "tags" },
      tags.map((tag) => h("span", { class: "tag", textContent: tag })),
    ),
    tokensOf(episode, options),
  ]);
}

function tokensOf(episode: RolloutEpisode, { largest, found }: ResponseOptions): HTMLElement {
  const { tokens } = episode;
  const marked = placesOf(tokens, found);
  const roles = rolesOf(episode);
  const spans = (from: number, to: number) =>
    tokens.slice(from, to).flatMap((text, i) => {
      const at = from + i;
      const classes = ["t", ...levelsOf(episode, at, largest), marked.has(at) ? "hit" : ""];
      const token = h("span", { class: classes.filter(Boolean).join(" "), textContent: text });
      token.dataset.at = String(at);
      const role = roles.get(at);
      return role === undefined ? [token] : [h("span", { class: "role", textContent: role }), token];
    });
  const body = h("div", { class: "tokens", tabIndex: 0 }, spans(0, mostTokens));
  facts.set(body, episode);
  if (tokens.length > mostTokens) {
    const text = `Show ${showCount(tokens.length - mostTokens)} more tokens`;
    const more = h("button", { type: "button", textContent: text });
    more.addEventListener("click", () => more.replaceWith(...spans(mostTokens, tokens.length)));
    body.append(more);
  }
  return body;
}

/** Tokens that a searched text touches. */
function placesOf(tokens: readonly string[], found: string): Set<number> {
  const places = new Set<number>();
  if (found === "") return places;
  const text = tokens.join("").toLowerCase();
  const wanted = found.toLowerCase();
  const ends: number[] = [];
  let end = 0;
  for (const token of tokens) {
    end += token.length;
    ends.push(end);
  }
  for (let at = text.indexOf(wanted); at >= 0; at = text.indexOf(wanted, at + 1)) {
    for (let i = ends.findIndex((it) => it > at); i >= 0 && i < ends.length; i++) {
      places.add(i);
      if (ends[i]! >= at + wanted.length) break;
    }
  }
  return places;
}

/** The episode whose tokens an element shows. */
const facts = new WeakMap<Element, RolloutEpisode>();

/** A tooltip with the numbers of the token under the pointer; the page adds the element that is returned. */
export function tokenTip(area: HTMLElement): HTMLElement {
  const tip = h("div", { class: "tip", hidden: true, attributes: { role: "tooltip" } });
  const show = (event: PointerEvent) => {
    const token = event.target instanceof Element ? event.target.closest(".t") : null;
    const episode = token?.parentElement ? facts.get(token.parentElement) : undefined;
    tip.hidden = episode === undefined;
    if (!(token instanceof HTMLElement) || episode === undefined) return;
    tip.replaceChildren(...tipLines(episode, Number(token.dataset.at)));
    const box = token.getBoundingClientRect();
    const left = Math.min(box.left, innerWidth - tip.offsetWidth - 8);
    const isLow = box.bottom + tip.offsetHeight + 8 > innerHeight;
    tip.style.left = `${Math.max(8, left)}px`;
    tip.style.top = `${isLow ? box.top - tip.offsetHeight - 4 : box.bottom + 4}px`;
  };
  area.addEventListener("pointerover", show);
  area.addEventListener("pointerdown", show);
  area.addEventListener("pointerleave", () => {
    tip.hidden = true;
  });
  return tip;
}

function tipLines(episode: RolloutEpisode, at: number): HTMLElement[] {
  const { tokens, logprobs, advantages, entropy, turns } = episode;
  const text = h("code", { textContent: JSON.stringify(tokens[at] ?? "") });
  if (!isDrawn(episode, at)) {
    const role = turns.find(({ start, end }) => at >= start && at < end)?.role;
    return [text, h("span", { textContent: `${role ?? "template"}, not drawn by the policy` })];
  }
  const logprob = logprobs[at];
  const rows: [string, number | null | undefined, (value: number) => string][] = [
    ["probability", logprob === null || logprob === undefined ? null : Math.exp(logprob), showShare],
    ["log-prob", logprob, showNumber],
    ["advantage", advantages?.[at], showNumber],
    ["entropy", entropy?.[at], showNumber],
  ];
  return [
    text,
    ...rows.flatMap(([label, value, show]) =>
      value === null || value === undefined
        ? []
        : [h("span", {}, [h("i", { textContent: label }), h("b", { textContent: show(value) })])],
    ),
  ];
}
