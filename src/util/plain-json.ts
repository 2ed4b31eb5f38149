/** Values that JSON can hold without a change: what is written and read back is the same. */

/** The first part of a value that JSON cannot hold, such as `state.seen is a Set`; null where there is none. */
export function notJson(value: unknown, path: string, outer: readonly unknown[] = []): string | null {
  if (value === null || typeof value === "string" || typeof value === "boolean") return null;
  if (typeof value === "number") return Number.isFinite(value) ? null : `${path} is ${value}`;
  if (typeof value !== "object") return `${path} is ${value === undefined ? "undefined" : `a ${typeof value}`}`;
  if (outer.includes(value)) return `${path} holds itself`;
  const isList = Array.isArray(value);
  if (!isList && !isPlain(value)) return `${path} is a ${value.constructor?.name ?? "special object"}`;
  const inner = [...outer, value];
  const parts = isList ? [...value].map((item, i) => [`[${i}]`, item] as const) : Object.entries(value);
  for (const [name, item] of parts) {
    const found = notJson(item, isList ? `${path}${name}` : `${path}.${name}`, inner);
    if (found !== null) return found;
  }
  return null;
}

/** An object literal, also of another realm. */
function isPlain(value: object): boolean {
  const prototype: unknown = Object.getPrototypeOf(value);
  return prototype === null || Object.getPrototypeOf(prototype) === null;
}
