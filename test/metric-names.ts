/** The metrics that a row of the metric table stands for. */

/** All names of a pattern; what can be anything stays as it is. */
export function namesOf(pattern: string): string[] {
  const [start = "", choices, ...rest] = pattern.split(/\{([^}]*,[^}]*)\}/);
  if (choices === undefined) return [start];
  // A split with two groups left gives text, choices, text, choices, text: put the rest together again.
  const after = rest.map((part, i) => (i % 2 === 1 ? `{${part}}` : part)).join("");
  return choices.split(",").flatMap((choice) => namesOf(after).map((end) => start + choice + end));
}
