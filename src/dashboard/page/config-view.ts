/** The config of a run, what was set first; or what differs between several. */

import type { RunConfig } from "../api.ts";
import { palette } from "./chart.ts";
import { configRows, isSetIn } from "./config-diff.ts";
import { empty, h, segments, swatch, type View } from "./dom.ts";
import { getConfig } from "./fetch.ts";
import { showValue } from "./format.ts";
import type { RunData } from "./run-data.ts";

export function configView(runs: readonly RunData[]): View {
  const body = h("div", { class: "card" });
  const element = h("div", { class: "config" });
  const isOne = runs.length === 1;
  let isAll = false;
  let configs: readonly RunConfig[] = [];
  const search = h("input", {
    type: "search",
    placeholder: "Find a key or value…",
    attributes: { "aria-label": "Find a key or value" },
    on: { input: () => render() },
  });
  const choose = (value: "changes" | "all") => {
    isAll = value === "all";
    render();
  };
  const choice = () =>
    segments(
      "Keys",
      [
        ["changes", isOne ? "Set by you" : "Differences"],
        ["all", "All keys"],
      ],
      { chosen: isAll ? "all" : "changes", onChoose: choose },
    );

  const render = () => {
    if (configs.length === 0) return;
    const words = search.value.toLowerCase();
    const set = configs[0]?.set ?? [];
    const rows = configRows(configs.map(({ config }) => config))
      .filter(({ key, differs }) => isAll || (isOne ? isSetIn(set, key) : differs))
      .filter(({ key, values }) => `${key} ${values.map(showValue).join(" ")}`.toLowerCase().includes(words));
    if (rows.length === 0) {
      const none = isOne ? "No key was set, or the run folder does not say which." : "The runs have the same config.";
      const text = isAll || words !== "" ? "No key or value has this text in it." : none;
      return body.replaceChildren(empty("Nothing to show", text));
    }
    const colors = palette();
    const heads = runs.map((run, i) => {
      const mark = runs.length > 1 ? swatch(colors[i % colors.length]!) : null;
      return h("th", { scope: "col" }, [mark, run.detail?.summary.name ?? run.id]);
    });
    body.replaceChildren(
      h("div", { class: "scroll" }, [
        h("table", { class: "keys" }, [
          h("thead", {}, [h("tr", {}, [h("th", { scope: "col", textContent: "Key" }), ...heads])]),
          h(
            "tbody",
            {},
            rows.map(({ key, values, differs }) =>
              h("tr", { class: differs ? "differs" : "" }, [
                h("th", { scope: "row" }, breakable(key)),
                ...values.map((value) =>
                  h("td", { textContent: value === undefined ? "not set" : showValue(value), class: kindOf(value) }),
                ),
              ]),
            ),
          ),
        ]),
      ]),
    );
  };

  element.append(body);
  Promise.all(runs.map(({ id }) => getConfig(id))).then(
    (found) => {
      configs = found;
      isAll = isOne && found[0]?.set.length === 0; // the folder does not say what was set
      element.prepend(h("div", { class: "toolbar" }, [choice(), search]));
      render();
    },
    (error) => body.replaceChildren(empty("No config", String(error.message))),
  );
  return { element };
}

const kindOf = (value: unknown): string => (value === undefined || value === null ? "missing" : typeof value);

/** A key that may be wrapped after each of its dots. */
function breakable(key: string): (HTMLElement | string)[] {
  const parts = key.split(/(?<=\.)/);
  return parts.flatMap((part, i) => (i === 0 ? [part] : [h("wbr"), part]));
}
