/**
 * The files of the page: its document, its style, its modules and uPlot's, each with its media type. The page
 * loads nothing else.
 *
 * The page's modules are TypeScript. From a clone they are served with their types removed; in the package they are
 * compiled like everything else, and served unchanged.
 */
import { createHash } from "node:crypto";
import { readdirSync, readFileSync } from "node:fs";
import { createRequire, stripTypeScriptTypes } from "node:module";
import { extname } from "node:path";
import { fileURLToPath } from "node:url";
import { favicon } from "./favicon.ts";
import { style } from "./style.ts";

type PageFile = { readonly type: string; readonly body: string };

const folder = new URL("./page/", import.meta.url);
const extension = extname(fileURLToPath(import.meta.url));

/** The file behind the page's import of `uplot`. */
const importMap = JSON.stringify({ imports: { uplot: "/uplot.js" } });

/** The hash that lets the import map pass the content policy. */
export const importMapHash = `sha256-${createHash("sha256").update(importMap).digest("base64")}`;

/** Every file of the page by its path. */
export function loadPage(): ReadonlyMap<string, PageFile> {
  const modules = readdirSync(folder).filter((name) => name.endsWith(extension) && !/\.(test|d)\.ts$/.test(name));
  const script = "text/javascript; charset=utf-8";
  return new Map<string, PageFile>([
    ["/", { type: "text/html; charset=utf-8", body: documentOf(modules) }],
    ["/style.css", { type: "text/css; charset=utf-8", body: vendor("uplot/dist/uPlot.min.css") + style }],
    ["/favicon.svg", { type: "image/svg+xml", body: favicon }],
    ["/uplot.js", { type: script, body: vendor("uplot/dist/uPlot.esm.js") }],
    ...modules.map((name) => [`/page/${name}`, { type: script, body: moduleOf(name) }] as const),
  ]);
}

function documentOf(modules: readonly string[]): string {
  const preloads = ["/uplot.js", ...modules.map((name) => `/page/${name}`)];
  return `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>trainyard</title>
<link rel="icon" href="/favicon.svg">
<link rel="stylesheet" href="/style.css">
<script type="importmap">${importMap}</script>
${preloads.map((path) => `<link rel="modulepreload" href="${path}">`).join("\n")}
<script type="module" src="/page/main${extension}"></script>
</head>
<body><noscript>This page needs JavaScript.</noscript></body>
</html>
`;
}

function moduleOf(name: string): string {
  const text = readFileSync(new URL(name, folder), "utf8");
  return extension === ".ts" ? withoutTypes(text) : text;
}

/** Without Node's warning that this is experimental; a clone runs on the same function anyway. */
function withoutTypes(text: string): string {
  const { emitWarning } = process;
  process.emitWarning = () => {};
  try {
    return stripTypeScriptTypes(text);
  } finally {
    process.emitWarning = emitWarning;
  }
}

function vendor(path: string): string {
  return readFileSync(createRequire(import.meta.url).resolve(path), "utf8");
}
