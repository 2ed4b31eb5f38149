/**
 * The page's style sheet, as text, because the compiler copies no other files into the package.
 *
 * Colours are named once for light and once for dark; everything else uses the names. One column on a phone, and only
 * tables and the row of tabs scroll sideways, inside their own boxes.
 */
import { componentStyle } from "./style-components.ts";

const light = `
  --bg: #f5f6f8; --surface: #ffffff; --sunken: #f0f2f5; --line: #e3e6eb; --line-strong: #c9ced8;
  --text: #171b24; --soft: #5a6373; --faint: #868fa0;
  --accent: #3457d5; --accent-soft: #e8edfc; --on-accent: #ffffff;
  --good: #0f7b54; --good-soft: #dff3ea; --warn: #8f5600; --warn-soft: #fcf0d8; --bad: #b8252f; --bad-soft: #fbe6e7;
  --series-0: #3457d5; --series-1: #d9730d; --series-2: #0f9467; --series-3: #9147c9; --series-4: #d23f87;
  --series-5: #0e8ba8; --series-6: #a37b00; --series-7: #6b7280; --series-8: #6a9a1f; --series-9: #8a5a44;
  --series-10: #b3344a; --series-11: #5b4fc4;
  --up: 15, 123, 84; --down: 199, 62, 40; --heat: 52, 87, 213;
  --shadow: 0 1px 2px rgb(20 26 40 / 5%), 0 1px 6px rgb(20 26 40 / 4%);
`;

const dark = `
  --bg: #0d1015; --surface: #151a21; --sunken: #10141a; --line: #252c36; --line-strong: #3a4350;
  --text: #e6e9ef; --soft: #9ca6b5; --faint: #6f7a8a;
  --accent: #8aa4ff; --accent-soft: #1b2540; --on-accent: #0d1015;
  --good: #4fc794; --good-soft: #12291f; --warn: #e2ad4e; --warn-soft: #2a2112; --bad: #f2777d; --bad-soft: #2e171a;
  --series-0: #7c9aff; --series-1: #f2a355; --series-2: #4cc795; --series-3: #c08cf0; --series-4: #f07fb4;
  --series-5: #4fc3dc; --series-6: #d9b84a; --series-7: #9aa3b2; --series-8: #a3d15c; --series-9: #c99a82;
  --series-10: #f08a96; --series-11: #a39bf5;
  --up: 79, 199, 148; --down: 242, 119, 100; --heat: 124, 154, 255;
  --shadow: none;
`;

const foundation = `
:root {
  color-scheme: light dark;
  --font: Inter, system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", sans-serif;
  --mono: ui-monospace, "SF Mono", "JetBrains Mono", Menlo, Consolas, monospace;
  ${light}
}
@media (prefers-color-scheme: dark) { :root { ${dark} } }

* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; }
body {
  margin: 0; background: var(--bg); color: var(--text); font: 14px/1.5 var(--font);
  font-variant-numeric: tabular-nums; overflow-wrap: anywhere;
}
h1, h2, h3, h4, p, ol, pre { margin: 0; }
h1 { font-size: 20px; line-height: 1.3; font-weight: 650; letter-spacing: -0.01em; }
h2 { font-size: 13px; font-weight: 650; color: var(--soft); margin: 0 0 10px; }
h3 { font-size: 14px; font-weight: 600; }
h4 { font-size: 12px; font-weight: 600; color: var(--soft); }
a { color: inherit; text-decoration: none; }
code, pre { font: 12.5px/1.55 var(--mono); }
[hidden] { display: none !important; }
:focus-visible { outline: 2px solid var(--accent); outline-offset: 1px; border-radius: 6px; }
.note { color: var(--soft); font-size: 13px; }
.number { text-align: right; }
.spacer { flex: 1; }

button, .button, input, select {
  font: inherit; font-size: 13px; color: var(--text); background: var(--surface); border: 1px solid var(--line-strong);
  border-radius: 8px; padding: 5px 11px; min-height: 32px;
}
button, .button, select { cursor: pointer; white-space: nowrap; }
button:hover:not(:disabled), .button:hover { border-color: var(--accent); }
button:disabled { opacity: 0.4; cursor: default; }
.button { display: inline-flex; align-items: center; }
.button.primary { background: var(--accent); border-color: var(--accent); color: var(--on-accent); font-weight: 600; }
input[type="search"] { min-width: 0; flex: 1 1 200px; max-width: 320px; }
input[type="range"] { padding: 0; min-height: 0; border: 0; background: none; accent-color: var(--accent); }
input[type="checkbox"] { min-height: 0; width: 16px; height: 16px; margin: 0; accent-color: var(--accent); }

.top {
  display: flex; align-items: center; gap: 14px; padding: 10px 24px; background: var(--surface);
  border-bottom: 1px solid var(--line);
}
.brand { display: inline-flex; align-items: center; gap: 9px; font-weight: 650; letter-spacing: -0.01em; }
.brand img { width: 22px; height: 22px; }
.crumbs { display: flex; gap: 8px; color: var(--soft); min-width: 0; font-size: 13px; }
.crumbs > * + *::before { content: "/"; margin-right: 8px; color: var(--faint); }
.crumbs a:hover { color: var(--accent); }
.crumbs span { white-space: nowrap; overflow: hidden; text-overflow: ellipsis; }
.trouble { padding: 8px 24px; background: var(--bad-soft); color: var(--bad); font-weight: 500; }

main, .run-header { max-width: 1560px; margin: 0 auto; padding: 0 24px; }
main { padding-top: 18px; padding-bottom: 64px; }
.run-header { padding-top: 20px; }
.title-row { display: flex; align-items: flex-start; gap: 12px; justify-content: space-between; }
.title { display: flex; align-items: center; gap: 10px; flex-wrap: wrap; min-width: 0; }
.folder { color: var(--faint); font-weight: 450; }
.facts { display: flex; align-items: center; gap: 12px; margin-top: 8px; color: var(--soft); font-size: 13px; }
.facts .progress { width: 160px; flex: none; }
.tabs {
  display: flex; gap: 4px; margin-top: 16px; border-bottom: 1px solid var(--line); overflow-x: auto;
  scrollbar-width: none;
}
.tabs a {
  padding: 8px 12px; color: var(--soft); font-weight: 550; border-bottom: 2px solid transparent; white-space: nowrap;
  margin-bottom: -1px;
}
.tabs a:hover { color: var(--text); }
.tabs a[aria-current] { color: var(--accent); border-color: var(--accent); }

.card {
  background: var(--surface); border: 1px solid var(--line); border-radius: 12px; padding: 14px 16px;
  box-shadow: var(--shadow); min-width: 0;
}
.card > header { display: flex; align-items: baseline; gap: 10px; }
.card > header .at { margin-left: auto; color: var(--faint); font-size: 12px; white-space: nowrap; }
.toolbar { display: flex; align-items: center; gap: 10px 14px; flex-wrap: wrap; margin: 0 0 16px; }
.scroll { overflow-x: auto; }
.empty { padding: 40px 16px; text-align: center; color: var(--soft); }
.empty strong { display: block; color: var(--text); margin-bottom: 4px; font-size: 15px; }

@media (max-width: 640px) {
  .top, .trouble { padding-left: 14px; padding-right: 14px; }
  main, .run-header { padding-left: 14px; padding-right: 14px; }
  .crumbs { display: none; }
  .card { padding: 12px; }
  .card > header { flex-wrap: wrap; }
  .tabs { gap: 0; }
  .tabs a { padding: 8px 6px; font-size: 12.5px; }
  .facts { flex-direction: column; align-items: stretch; gap: 6px; }
  .facts .progress { width: 100%; }
  input[type="search"] { max-width: none; flex-basis: 100%; }
}
@media (prefers-reduced-motion: reduce) { * { animation: none !important; } }
`;

export const style = foundation + componentStyle;
