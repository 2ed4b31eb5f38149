/**
 * Elements in one expression, and nothing more. Text goes in as text nodes and properties, never as markup.
 */

declare global {
  /** The types that this file replaces name it. */
  interface RequestInit {
    duplex?: "half";
  }
}

type Tags = HTMLElementTagNameMap;
type Listeners = { readonly [E in keyof HTMLElementEventMap]?: (event: HTMLElementEventMap[E]) => void };

type Props<K extends keyof Tags> = Partial<Omit<Tags[K], "dataset" | "style" | "children" | "attributes">> & {
  readonly class?: string;
  readonly on?: Listeners;
  /** Attributes by name: aria-…, data-…, role. */
  readonly attributes?: Readonly<Record<string, string>>;
};

export type Child = Node | string | null;

/** A view of the page: an element, what to do when there is new data, and when it is removed. */
export type View = {
  readonly element: HTMLElement;
  update?(): void;
  dispose?(): void;
};

/** Make an element. */
export function h<K extends keyof Tags>(tag: K, props: Props<K> = {}, children: readonly Child[] = []): Tags[K] {
  const element = document.createElement(tag);
  const { class: className, on, attributes, ...own } = props;
  Object.assign(element, own);
  if (className !== undefined) element.className = className;
  for (const [name, value] of Object.entries(attributes ?? {})) element.setAttribute(name, value);
  for (const [name, listener] of Object.entries(on ?? {})) {
    // The table of listeners pairs each name with a listener of its own event.
    element.addEventListener(name, listener as EventListener);
  }
  element.append(...children.filter((child) => child !== null));
  return element;
}

const rendered = new WeakMap<Element, string>();

/** Fill a container, unless its content already has this key, so that an element is not replaced during a click. */
export function renderOnce(container: HTMLElement, key: string, build: () => readonly Child[]): void {
  if (rendered.get(container) === key) return;
  rendered.set(container, key);
  container.replaceChildren(...build().filter((child) => child !== null));
}

/** A square in the colour of a line. */
export function swatch(color: string, className = "swatch"): HTMLElement {
  const element = h("i", { class: className });
  element.style.background = color;
  return element;
}

/** A sparkline: a few values as a line without axes. */
export function sparkline(values: readonly number[], { width = 96, height = 26 } = {}): SVGSVGElement {
  const svg = document.createElementNS(svgSpace, "svg");
  svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
  svg.setAttribute("preserveAspectRatio", "none");
  svg.setAttribute("class", "spark");
  svg.setAttribute("aria-hidden", "true");
  if (values.length < 2) return svg;
  const low = Math.min(...values);
  const span = Math.max(...values) - low || 1;
  const points = values.map((value, i) => {
    const x = 1 + (i * (width - 2)) / (values.length - 1);
    const y = height - 3 - ((value - low) / span) * (height - 6);
    return `${x.toFixed(1)},${y.toFixed(1)}`;
  });
  const line = document.createElementNS(svgSpace, "polyline");
  line.setAttribute("points", points.join(" "));
  line.setAttribute("vector-effect", "non-scaling-stroke");
  svg.append(line);
  return svg;
}

const svgSpace = "http://www.w3.org/2000/svg";

/** One of several choices, as buttons side by side. */
export function segments<T extends string>(
  label: string,
  choices: readonly (readonly [value: T, text: string])[],
  { chosen, onChoose }: { chosen: T; onChoose: (value: T) => void },
): HTMLElement {
  const buttons = choices.map(([value, text]) =>
    h("button", {
      type: "button",
      textContent: text,
      attributes: { "aria-pressed": String(value === chosen), "data-value": value },
      on: {
        click: () => {
          for (const button of buttons) button.setAttribute("aria-pressed", String(button.dataset.value === value));
          onChoose(value);
        },
      },
    }),
  );
  return h("div", { class: "segments", attributes: { role: "group", "aria-label": label } }, buttons);
}

/** A message for an empty place. */
export const empty = (title: string, text: string): HTMLElement =>
  h("div", { class: "empty" }, [h("strong", { textContent: title }), h("p", { textContent: text })]);
