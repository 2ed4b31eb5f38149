/** Column names that datasets use for a prompt and its response; the first pair that a file has is taken. */
export const columnPairs = [
  ["prompt", "response"],
  ["question", "answer"],
  ["instruction", "output"],
] as const;
