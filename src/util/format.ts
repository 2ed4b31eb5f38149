/** Numbers as people read them: bytes, durations, counts. */

/** `1536` -> `1.5 KB`. */
export function formatBytes(bytes: number): string {
  const units = ["B", "KB", "MB", "GB", "TB"];
  let unit = 0;
  let value = bytes;
  while (value >= 1024 && unit < units.length - 1) {
    value /= 1024;
    unit++;
  }
  return `${unit === 0 ? value : value.toFixed(value < 10 ? 1 : 0)} ${units[unit]}`;
}

/** `3725` seconds -> `1h02m`. */
export function formatSeconds(seconds: number): string {
  if (!Number.isFinite(seconds)) return "?";
  const whole = Math.round(seconds);
  const two = (n: number) => String(n).padStart(2, "0");
  if (whole < 60) return `${whole}s`;
  if (whole < 3600) return `${Math.floor(whole / 60)}m${two(whole % 60)}s`;
  return `${Math.floor(whole / 3600)}h${two(Math.floor((whole % 3600) / 60))}m`;
}

/** `25829888` -> `25.8M`. */
export function formatCount(count: number): string {
  if (count < 1000) return String(Math.round(count));
  const units = ["", "K", "M", "B", "T"];
  const unit = Math.min(units.length - 1, Math.floor(Math.log10(count) / 3));
  const value = count / 1000 ** unit;
  return `${value.toFixed(value < 100 ? 1 : 0)}${units[unit]}`;
}

/** `1 step`, `4 steps`. */
export function counted(count: number, noun: string): string {
  return `${formatCount(count)} ${noun}${count === 1 ? "" : "s"}`;
}
