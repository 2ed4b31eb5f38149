/**
 * The pages hold: links lead somewhere, commands parse, keys and files exist, and the TypeScript in them compiles.
 *
 * Everything is read from README.md, the table of examples and docs/. A command is checked by the parser that would run
 * it, with `--help` behind it, so nothing starts; its config keys are looked up in the schema of its verb. Code that imports the package goes
 * through the compiler, and the config and the hooks of docs/extending.md are run.
 */
import { execFile } from "node:child_process";
import { existsSync, globSync, readFileSync, statSync } from "node:fs";
import { mkdir, mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join, posix } from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, describe, expect, test, vi } from "vitest";
import { parseArguments } from "../src/cli/arguments.ts";
import { main } from "../src/cli/main.ts";
import { loadSchemas } from "../src/cli/verbs.ts";
import { parseOverride } from "../src/config/overrides.ts";
import { find, onEngine } from "../src/config/schema.ts";
import { Yard } from "./rl-yard.ts";

const schemas = await loadSchemas();
const root = fileURLToPath(new URL("..", import.meta.url));
const read = (file: string): string => readFileSync(join(root, file), "utf8");
const pages = ["README.md", "examples/README.md", ...globSync("docs/**/*.md", { cwd: root })].map((file) =>
  file.replaceAll("\\", "/"),
);

type Block = { readonly page: string; readonly language: string; readonly text: string };

/** The fenced blocks of a page. */
function blocksOf(page: string): Block[] {
  const blocks = read(page).matchAll(/^```(\w*)\n(.*?)^```$/gms);
  return [...blocks].map(([, language = "", text = ""]) => ({ page, language, text }));
}

/** A page without its fenced blocks. */
const proseOf = (page: string): string => read(page).replaceAll(/^```.*?^```$/gms, "");

/** What stands between backticks in the prose of a page. */
const spansOf = (page: string): string[] => [...proseOf(page).matchAll(/`([^`\n]+)`/g)].map(([, span = ""]) => span);

const blocks = pages.flatMap(blocksOf);

describe("every link of a page leads to a file, and to a heading of it", () => {
  test.each(pages)("%s", (page) => {
    const links = [...proseOf(page).matchAll(/!?\[[^\]]*\]\(([^)\s]+)\)/g)].map(([, target = ""]) => target);
    const broken = links.filter((target) => !/^https?:/.test(target) && !isThere(page, target));
    expect(broken).toEqual([]);
  });

  function isThere(page: string, target: string): boolean {
    const [path = "", heading] = target.split("#");
    const file = path === "" ? page : posix.join(posix.dirname(page), path);
    if (!existsSync(join(root, file))) return false;
    return heading === undefined || headingsOf(file).includes(heading);
  }

  /** As GitHub makes addresses of headings. */
  function headingsOf(file: string): string[] {
    const titles = [...proseOf(file).matchAll(/^#+ (.+)$/gm)].map(([, title = ""]) => title);
    return titles.map((title) =>
      title
        .toLowerCase()
        .replaceAll(/[^\p{L}\p{N}\s_-]/gu, "")
        .replaceAll(" ", "-"),
    );
  }
});

test("no page stands alone: docs/README.md lists every one", () => {
  const index = read("docs/README.md");
  const missing = pages.filter((page) => page.startsWith("docs/") && page !== "docs/README.md");
  expect(missing.filter((page) => !index.includes(`(${page.slice("docs/".length)})`))).toEqual([]);
});

test("a picture takes at most 200 KB", () => {
  const pictures = globSync("docs/images/*", { cwd: root });
  expect(pictures).not.toEqual([]);
  expect(pictures.filter((file) => statSync(join(root, file)).size > 200 * 1024)).toEqual([]);
});

describe("every file that a page names is there", () => {
  const tops = /^(src|test|scripts|bench|docs|bin)\/[\w./-]+$/;
  const rooms = new RegExp(`^(${globSync("*/", { cwd: join(root, "src") }).join("|")})/[\\w./-]+\\.ts$`);
  test.each(pages)("%s", (page) => {
    const wanted = spansOf(page).flatMap((span) =>
      tops.test(span) ? [span] : rooms.test(span) ? [`src/${span}`] : [],
    );
    expect(wanted.filter((path) => !existsSync(join(root, path)))).toEqual([]);
  });
});

describe("every config key that a page names is one", () => {
  const roots = new Set(schemas.flatMap(({ fields }) => Object.keys(fields)));
  /** Of the verbs that have such keys at all; others may pass over the whole branch. */
  const isKey = (path: string): boolean =>
    schemas.some((it) => Object.hasOwn(it.fields, path.split(".")[0] ?? "") && find(it, path).kind !== "unknown");
  /** Pages may leave out where a key stands: `rollout.n` is the end of `actor_rollout_ref.rollout.n`. */
  const isEnd = (path: string): boolean => ["actor_rollout_ref", "algorithm"].some((it) => isKey(`${it}.${path}`));
  const columns = ["reward_model.ground_truth"]; // of rows, not of configs
  test.each(pages.filter((page) => page !== "docs/config.md"))("%s", (page) => {
    const keys = spansOf(page).flatMap((span) => /^([a-z_]\w*(?:\.[a-z_]\w*)+)(?:=.*)?$/.exec(span)?.[1] ?? []);
    const wanted = keys.filter((key) => roots.has(key.split(".")[0] ?? "") && !columns.includes(key));
    expect(wanted.filter((key) => !isKey(key) && !isEnd(key))).toEqual([]);
  });
});

/** The commands of a script: lines with their continuations, without comments, cut at what the shell gives a meaning. */
function commandsOf(script: string): string[][] {
  const lines = script.replaceAll(/\\\n\s*/g, " ").split("\n");
  return lines.flatMap((line) => {
    const words = [...line.matchAll(/'[^']*'|(?:"[^"]*"|[^\s'"])+|"[^"]*"/g)].map(([word]) => word);
    const end = words.findIndex((word) => word.startsWith("#"));
    const kept = end === -1 ? words : words.slice(0, end);
    const commands: string[][] = [[]];
    for (const word of kept) {
      if (/^(\||&&|;|>|2>)$/.test(word)) commands.push([]);
      else if (word !== "…") commands.at(-1)?.push(word.replaceAll(/^['"]|['"]$/g, ""));
    }
    return commands.filter((words) => words.length > 0);
  });
}

const commands = blocks
  .filter(({ language }) => ["sh", "bash"].includes(language))
  .flatMap(({ page, text }) => commandsOf(text).map((words) => ({ page, words, shown: words.join(" ") })));

describe("every trainyard command of a page is understood", () => {
  const ours = commands.filter(({ words }) => words[0] === "npx" && words[1] === "trainyard");
  test("there are some", () => expect(ours.length).toBeGreaterThan(40));

  test.each(ours)("$page: $shown", async ({ words: [, , verb = "", ...args] }) => {
    const said: string[] = [];
    const out = vi.spyOn(process.stdout, "write").mockImplementation(() => true);
    const err = vi.spyOn(process.stderr, "write").mockImplementation((text) => said.push(String(text)) > 0);
    try {
      const call = verb === "completion" ? [verb, ...args] : [verb, ...args, "--help"]; // which has no help of its own
      expect([await main(call, {}), said]).toEqual([0, []]);
    } finally {
      out.mockRestore();
      err.mockRestore();
    }
    const engine = args.includes("trainer.engine=ray") ? "ray" : "embedded";
    const known = schemas
      .filter((it) => it.verb === verb || verb === "data") // whose keys are those of --for
      .map((schema) => onEngine(schema, engine));
    const paths = known.length === 0 ? [] : keysOf(verb, args);
    expect(paths.filter((path) => !known.some((schema) => find(schema, path).kind === "field"))).toEqual([]);
  });

  /** The keys that a command sets. */
  function keysOf(verb: string, args: readonly string[]): string[] {
    const entries = verb === "data" ? args.filter((it) => /^\w[\w.]*=/.test(it)).map(parseOverride) : null;
    return (entries ?? parseArguments(args).overrides).map(({ path }) => path);
  }
});

test("every npm command of a page is there", () => {
  const { scripts }: { scripts: Record<string, string> } = JSON.parse(read("package.json"));
  const npm = commands
    .filter(({ words }) => words[0] === "npm")
    .map(({ words: [, verb = "", name = ""] }) => ({ verb, name }));
  const spans = pages.flatMap(spansOf).flatMap((span) => /^npm run (\S+)/.exec(span)?.[1] ?? []);
  const ran = [...npm.filter(({ verb }) => verb === "run").map(({ name }) => name), ...spans];
  const short = npm.filter(({ verb }) => !["run", "install", "init", "pkg"].includes(verb)).map(({ verb }) => verb);
  expect(ran).not.toEqual([]);
  expect([...ran, ...short].filter((name) => !Object.hasOwn(scripts, name))).toEqual([]);
});

test("docs/reading-the-curves.md explains every warning of the dashboard", () => {
  const titles = [...read("src/dashboard/warnings.ts").matchAll(/^\s+title: (.+),$/gm)].flatMap(([, value = ""]) =>
    [...value.matchAll(/"([^"]+)"/g)].map(([, title = ""]) => title),
  );
  const page = read("docs/reading-the-curves.md");
  expect(titles.length).toBeGreaterThan(8);
  expect(titles.filter((title) => !page.includes(`### ${title}`) && !page.includes(`**${title}**`))).toEqual([]);
});

describe("the TypeScript of the pages", () => {
  const scripts = blocks.filter(({ language, text }) => language === "ts" && /from "trainyard(\/reward)?"/.test(text));
  let folder = "";
  let yard: Yard;
  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), "trainyard-docs-"));
    yard = await Yard.make();
  });
  afterAll(async () => {
    await rm(folder, { recursive: true, force: true });
    yard.remove();
  });

  /** Where a block goes: a first line such as `// rewards/brief.ts` names it. */
  const nameOf = ({ page, text }: Block, i: number): string => {
    const named = /^\/\/ (\S+\.ts)\n/.exec(text)?.[1] ?? "block.ts";
    return join(page.replaceAll(/\W/g, "-"), String(i), named);
  };

  test("compiles, strictly, against the sources", { timeout: 120_000 }, async () => {
    const files = scripts.map((block, i) => ({ name: nameOf(block, i), text: `${block.text}\nexport {};\n` }));
    expect(files.length).toBeGreaterThan(6);
    for (const { name, text } of files) {
      await mkdir(dirname(join(folder, name)), { recursive: true });
      await writeFile(join(folder, name), text);
    }
    const compilerOptions = {
      target: "es2024",
      lib: ["es2024", "esnext.disposable"],
      module: "nodenext",
      strict: true,
      noEmit: true,
      exactOptionalPropertyTypes: true,
      verbatimModuleSyntax: true,
      erasableSyntaxOnly: true,
      skipLibCheck: true,
      allowImportingTsExtensions: true,
      types: ["node"],
      typeRoots: [join(root, "node_modules/@types")],
      paths: { trainyard: [join(root, "src/index.ts")], "trainyard/reward": [join(root, "src/rewards/reward.ts")] },
    };
    const globals = join(root, "src/runtime/webassembly.d.ts");
    const config = { compilerOptions, files: [globals, ...files.map(({ name }) => name)] };
    await writeFile(join(folder, "package.json"), '{"type": "module"}');
    await writeFile(join(folder, "tsconfig.json"), JSON.stringify(config));
    const compiler = join(root, "node_modules/typescript/bin/tsc");
    const { output } = await call([compiler, "--project", folder, "--pretty", "false"], folder);
    expect(output).toBe("");
  });

  test("trains: the estimator and the loss of docs/extending.md, for two steps", { timeout: 120_000 }, async () => {
    const config = scripts.find(
      ({ page, text }) => page === "docs/extending.md" && text.includes("registerPolicyLoss"),
    );
    await writeFile(yard.path("trainyard.config.ts"), config?.text ?? "");
    const { code, output } = await call(
      [join(root, "bin/trainyard.js"), "ppo", "trainer.threads=1", "algorithm.own.group_median.quantile=0.5"],
      yard.root,
    );
    expect([code, output]).toEqual([0, expect.stringContaining("by group_median and the loss square_penalty")]);
    expect((await yard.metrics("run")).map((data) => data["actor/penalty"])).toEqual([
      expect.any(Number),
      expect.any(Number),
    ]);
  });

  test("trains: the sampler, the dataset and the generator of docs/extending.md", { timeout: 120_000 }, async () => {
    await mkdir(yard.path("hooks"));
    for (const name of ["sampler.ts", "dataset.ts", "generator.ts"]) {
      const block = scripts.find(({ page, text }) => page === "docs/extending.md" && text.startsWith(`// ${name}\n`));
      await writeFile(yard.path("hooks", name), block?.text ?? "");
    }
    await writeFile(
      yard.path("hooks", "reward.ts"),
      "export const compute_score = ({ response }) => response.includes('77');\n",
    );
    const args = yard.args("hooked", [
      "data.sampler.class_path=sampler.ts",
      "data.custom_cls.path=dataset.ts",
      "data.datagen.path=generator.ts",
      "custom_reward_function.path=reward.ts",
    ]);
    const { code, output } = await call([join(root, "bin/trainyard.js"), ...args], yard.path("hooks"));
    expect([code, output]).toEqual([0, expect.stringContaining("on 16 prompts: 2 steps")]);
    const state = JSON.parse(await readFile(yard.path("hooked", "global_step_2", "state.json"), "utf8"));
    expect(state).toMatchObject({ loader: { batches: 2, sampler: { open: 0.5 } } });
    expect(state.datagen.rows.length).toBe(state.datagen.state.repeated.length);
    expect(state.datagen.rows[0]).toMatchObject({ data_source: "again", difficulty: 1 });
  });

  /** Run Node on some arguments; the output is all that it said. */
  function call(args: readonly string[], cwd: string): Promise<{ code: unknown; output: string }> {
    return new Promise((done) => {
      execFile(process.execPath, args, { cwd, timeout: 110_000 }, (error, stdout, stderr) =>
        done({ code: error?.code ?? 0, output: stdout + stderr }),
      );
    });
  }
});
