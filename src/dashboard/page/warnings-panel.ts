/** The warnings of a run: what was seen, and what to try. */
import type { RunDetail, Warning } from "../api.ts";
import { h } from "./dom.ts";
import { showCount } from "./format.ts";

/** Opened ones stay open while the numbers in them change. */
const opened = new Set<string>();

export function warningsPanel({ warnings, rows, unreadable }: RunDetail): HTMLElement {
  const unread =
    unreadable === 0
      ? []
      : [h("p", { class: "note", textContent: `${showCount(unreadable)} lines of metrics.jsonl cannot be read.` })];
  if (warnings.length === 0) {
    const text = rows < 20 ? "Too few steps to judge by yet." : "Nothing in the metrics asks for a look.";
    return h("div", { class: "warnings is-calm" }, [h("p", { class: "note", textContent: text }), ...unread]);
  }
  return h("div", { class: "warnings" }, [...warnings.map(warningCard), ...unread]);
}

function warningCard({ id, level, title, text, tries, metrics, since }: Warning): HTMLElement {
  const details = h("details", { class: `warning ${level}`, open: opened.has(id) }, [
    h("summary", {}, [
      h("span", { class: "mark", textContent: level === "serious" ? "!" : "i" }),
      h("strong", { textContent: title }),
      h("span", { class: "since", textContent: `since step ${showCount(since)}` }),
    ]),
    h("p", {}, withCode(text)),
    h("h4", { textContent: "What to try" }),
    h(
      "ol",
      {},
      tries.map((it) => h("li", {}, withCode(it))),
    ),
    h("p", { class: "note", textContent: metrics.join(", ") }),
  ]);
  details.addEventListener("toggle", () => {
    if (details.open) opened.add(id);
    else opened.delete(id);
  });
  return details;
}

/** Text in which parts between backticks are shown as code. */
function withCode(text: string): (HTMLElement | string)[] {
  return text.split("`").map((part, i) => (i % 2 === 1 ? h("code", { textContent: part }) : part));
}
