/** Numbers, times and values as people read them. Pure. */

/** Four significant digits: `0.4213`, `1,234`, `12.3M`, `3e-6`. */
export function showNumber(value: number): string {
  if (!Number.isFinite(value)) return "–";
  const size = Math.abs(value);
  if (size === 0) return "0";
  if (size < 1e-3 || size >= 1e15) return shortExponent(value.toExponential(2));
  if (size >= 1e9) return `${trimmed(value / 1e9)}B`;
  if (size >= 1e6) return `${trimmed(value / 1e6)}M`;
  if (size >= 1000) return Math.round(value).toLocaleString("en-US");
  return trimmed(value);
}

const shortExponent = (text: string): string => text.replace(/\.?0+e/, "e").replace("e+", "e");

const trimmed = (value: number): string => String(Number(value.toPrecision(4)));

/** Whole numbers with separators. */
export const showCount = (value: number): string => value.toLocaleString("en-US");

/** `0.41` -> `41%`; below a percent with a digit more. */
export function showShare(share: number): string {
  const percent = 100 * share;
  return `${percent > 0 && percent < 1 ? percent.toFixed(1) : Math.round(percent)}%`;
}

/** Short durations: `<0.1 ms`, `340 ms`, `12.1 s`, `3m 05s`, `1h 20m`, `2d 3h`. */
export function showSeconds(seconds: number): string {
  if (!Number.isFinite(seconds)) return "–";
  if (seconds > 0 && seconds < 1e-4) return "<0.1 ms";
  if (seconds < 0.9995) return `${trimmedTo(seconds * 1000, 3)} ms`;
  if (seconds < 59.95) return `${trimmedTo(seconds, 3)} s`;
  const whole = Math.round(seconds);
  const two = (n: number) => String(n).padStart(2, "0");
  if (whole < 3600) return `${Math.floor(whole / 60)}m ${two(whole % 60)}s`;
  if (whole < 86_400) return `${Math.floor(whole / 3600)}h ${two(Math.floor((whole % 3600) / 60))}m`;
  return `${Math.floor(whole / 86_400)}d ${Math.floor((whole % 86_400) / 3600)}h`;
}

const trimmedTo = (value: number, digits: number): string => String(Number(value.toPrecision(digits)));

/** How long ago a moment was. */
export function showAgo(atMs: number, nowMs: number): string {
  const seconds = Math.max(0, (nowMs - atMs) / 1000);
  if (seconds < 5) return "just now";
  if (seconds < 60) return `${Math.round(seconds / 5) * 5} s ago`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ago`;
  if (seconds < 86_400) return `${Math.floor(seconds / 3600)} h ago`;
  return new Date(atMs).toISOString().slice(0, 10);
}

/** Any value of a config or a reward: text as it is, the rest as JSON. */
export function showValue(value: unknown): string {
  if (typeof value === "string") return value === "" ? '""' : value;
  if (typeof value === "number" && value !== 0 && Math.abs(value) < 1e-3) return shortExponent(value.toExponential());
  return JSON.stringify(value) ?? "";
}

/** A prompt in one line: what the user asked, without the template's marks where they are known. */
export function promptLine(prompt: string): string {
  const turns = prompt.split(/<\|im_start\|>|<\|start_header_id\|>/).filter((turn) => /^\s*user\b/.test(turn));
  const said = (turns.at(-1) ?? prompt).replace(/^\s*user(<\|end_header_id\|>)?\s*/, "");
  return (
    said
      .replace(/<\|[^|]*\|>/g, " ")
      .replace(/\s+/g, " ")
      .trim() || prompt
  );
}
