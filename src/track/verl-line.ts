/**
 * verl's console line: `step:N - name:value - …`, the numbers as Python prints them.
 *
 * Python prints 1 and 1.0 differently and JavaScript does not, so the metrics that are integers in verl are listed here.
 */
import type { Metrics } from "../run/metrics.ts";

const wholeNumbers =
  /^(training\/(global_step|epoch)|global_seqlen\/(min|max|minmax_diff|balanced_min|balanced_max)|perf\/total_num_tokens|train\/global_tokens)$/;

/** The line of a step. */
export function verlLine(step: number, data: Metrics): string {
  const fields = Object.entries(data).map(([name, value]) => {
    const isWhole = wholeNumbers.test(name) && Number.isInteger(value);
    return `${name}:${isWhole ? String(value) : pythonFloat(value)}`;
  });
  return [`step:${step}`, ...fields].join(" - ");
}

/** `repr` of a Python float: the shortest digits that parse to the same value, with an exponent below 1e-4 and from 1e16. */
export function pythonFloat(value: number): string {
  if (Number.isNaN(value)) return "nan";
  if (!Number.isFinite(value)) return value > 0 ? "inf" : "-inf";
  if (value === 0) return Object.is(value, -0) ? "-0.0" : "0.0";
  const [digits = "", power = ""] = value.toExponential().split("e");
  const exponent = Number(power);
  if (exponent < -4 || exponent >= 16) {
    return `${digits}e${exponent < 0 ? "-" : "+"}${String(Math.abs(exponent)).padStart(2, "0")}`;
  }
  const plain = String(value);
  return plain.includes(".") ? plain : `${plain}.0`;
}
