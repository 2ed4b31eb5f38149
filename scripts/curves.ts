/**
 * `node scripts/curves.ts NAME=RUN …`: writes the results of runs to docs/learning.md, as pictures and tables.
 *
 * All numbers come from the metrics.jsonl of the runs. A name that is already on the page is replaced. The other names
 * stay: their numbers are in docs/learning/NAME.json.
 */
import { mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { availableParallelism, cpus } from "node:os";
import { join } from "node:path";
import { readMetrics } from "../src/run/metrics.ts";
import { messageOf } from "../src/util/errors.ts";

const docs = join(import.meta.dirname, "..", "docs");
const folder = join(docs, "learning");

/** A curve: one value for each step that has one. */
type Curve = readonly (readonly [step: number, value: number])[];
type Learnt = {
  readonly name: string;
  readonly steps: number;
  /** Minutes from the start to the end of each step; steps without metrics are not counted. */
  readonly minutes: Readonly<Record<number, number>>;
  readonly machine: string;
  readonly curves: Readonly<Record<string, Curve>>;
};

/** The curves of a run, in this order; a run may lack some of them. */
const shown: readonly (readonly [title: string, metric: RegExp])[] = [
  ["greedy accuracy", /^val-core\/.*\/mean@1$/],
  ["mean reward", /^critic\/rewards\/mean$/],
  ["entropy", /^actor\/entropy$/],
  ["KL to the policy before the update", /^actor\/ppo_kl$/],
  ["KL to the reference", /^actor\/reward_kl_penalty$/],
  ["response length", /^response_length\/mean$/],
];

async function read(name: string, run: string): Promise<Learnt> {
  const lines = await readMetrics(run);
  const curves: Record<string, Curve> = {};
  for (const [title, metric] of shown) {
    const curve = lines.flatMap(({ step, data }) => {
      const found = Object.entries(data).find(([key]) => metric.test(key));
      return found === undefined ? [] : [[step, Number(found[1].toPrecision(4))] as const];
    });
    if (curve.length > 1) curves[title] = curve;
  }
  const minutes: Record<number, number> = {};
  let seconds = 0;
  for (const { step, data } of lines) {
    seconds += (data["timing_s/step"] ?? 0) + (data["timing_s/testing"] ?? 0);
    minutes[step] = Number((seconds / 60).toFixed(1));
  }
  const machine = `${availableParallelism()} cores of ${cpus()[0]?.model.trim()}`;
  return { name, steps: lines.at(-1)?.step ?? 0, minutes, machine, curves };
}

/** A small line chart; its colours follow the reader's light or dark mode. */
function chart(title: string, curve: Curve): string {
  const [width, height, left, top, right, bottom] = [360, 200, 44, 28, 12, 28];
  const [steps, values] = [curve.map(([step]) => step), curve.map(([, value]) => value)];
  const low = Math.min(0, ...values);
  const high = Math.max(low + 1e-9, ...values);
  const x = (step: number) =>
    left + ((width - left - right) * (step - steps[0]!)) / Math.max(1, steps.at(-1)! - steps[0]!);
  const y = (value: number) => height - bottom - ((height - top - bottom) * (value - low)) / (high - low);
  const line = curve.map(([step, value]) => `${x(step).toFixed(1)},${y(value).toFixed(1)}`).join(" ");
  const text = (at: readonly [number, number], anchor: string, words: string) =>
    `<text x="${at[0].toFixed(1)}" y="${at[1].toFixed(1)}" text-anchor="${anchor}">${words}</text>`;
  const ticks = [low, (low + high) / 2, high].map(
    (value) =>
      `<line x1="${left}" x2="${width - right}" y1="${y(value).toFixed(1)}" y2="${y(value).toFixed(1)}" class="grid"/>` +
      text([left - 6, y(value) + 4], "end", String(Number(value.toPrecision(2)))),
  );
  return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width} ${height}" width="${width}" height="${height}">
<title>${title}</title>
<style>text{font:11px system-ui,sans-serif;fill:#57606a}.title{font-weight:600;fill:#24292f}.grid{stroke:#8b949e;stroke-opacity:.3}polyline{fill:none;stroke:#2f54d8;stroke-width:1.8}@media(prefers-color-scheme:dark){text{fill:#9aa4af}.title{fill:#e6edf3}polyline{stroke:#7d9bff}}</style>
<text x="${left}" y="16" class="title">${title}</text>
${ticks.join("\n")}
${text([left, height - 10], "start", `step ${steps[0]}`)}${text([width - right, height - 10], "end", `${steps.at(-1)}`)}
<polyline points="${line}"/>
</svg>
`;
}

const fileOf = (name: string, title: string) => `${name}-${title.toLowerCase().replaceAll(" ", "-")}.svg`;

function section({ name, steps, minutes, machine, curves }: Learnt): string {
  const rows = Object.entries(curves).map(([title, curve]) => {
    const best = curve.reduce((a, b) => (b[1] > a[1] ? b : a));
    return `| ${title} | ${curve[0]![1]} | ${best[1]} at step ${best[0]}, minute ${minutes[best[0]]} | ${curve.at(-1)![1]} |`;
  });
  const pictures = Object.keys(curves).map((title) => `![${title} of ${name}](learning/${fileOf(name, title)})`);
  return [
    `## ${name}`,
    `\`examples/${name}.ts\`: ${steps} steps in ${minutes[steps]} minutes on ${machine}.`,
    ["| | first | highest | last |", "| --- | --- | --- | --- |", ...rows].join("\n"),
    pictures.join("\n"),
  ].join("\n\n");
}

async function main(args: readonly string[]): Promise<void> {
  mkdirSync(folder, { recursive: true });
  for (const arg of args) {
    const [name = "", run = ""] = arg.split(/=(.*)/s);
    if (run === "") throw new Error(`\`${arg}\` is not NAME=RUN.`);
    const learnt = await read(name, run);
    writeFileSync(join(folder, `${name}.json`), `${JSON.stringify(learnt)}\n`);
    for (const [title, curve] of Object.entries(learnt.curves))
      writeFileSync(join(folder, fileOf(name, title)), chart(title, curve));
  }
  const all = readdirSync(folder)
    .filter((file) => file.endsWith(".json"))
    .sort()
    .map((file) => JSON.parse(readFileSync(join(folder, file), "utf8")) as Learnt); // written above
  const intro =
    "# Results of the examples\n\nEach section is one run of an example, from its own metrics; `node scripts/curves.ts NAME=RUN` " +
    "wrote it. The minutes are the time of steps and validations. The same seed gives the same run on the same machine with the " +
    "same number of threads. Another number of threads changes the order of summation, so the curves may differ.";
  writeFileSync(join(docs, "learning.md"), `${[intro, ...all.map(section)].join("\n\n")}\n`);
}

try {
  await main(process.argv.slice(2));
} catch (error) {
  console.error(messageOf(error));
  process.exitCode = 1;
}
