/** The styles of the components of the views; see style.ts. */
export const componentStyle = `
.pill {
  display: inline-flex; align-items: center; gap: 6px; padding: 1px 9px; border-radius: 99px; font-size: 12px;
  font-weight: 600; line-height: 20px; background: var(--sunken); color: var(--soft); white-space: nowrap;
}
.pill > i { width: 7px; height: 7px; border-radius: 50%; background: currentColor; }
.pill.live { background: var(--good-soft); color: var(--good); }
.pill.live > i { animation: pulse 1.6s ease-in-out infinite; }
.pill.finished { background: var(--accent-soft); color: var(--accent); }
.pill.warned { background: var(--warn-soft); color: var(--warn); }
.pill.best { background: var(--good-soft); color: var(--good); }
.pill.worst { background: var(--bad-soft); color: var(--bad); }
@keyframes pulse { 50% { opacity: 0.35; } }

.progress { display: block; height: 6px; border-radius: 3px; background: var(--line); overflow: hidden; }
.progress > i { display: block; height: 100%; border-radius: 3px; background: var(--faint); }
.progress.live > i { background: var(--good); }
.progress.finished > i { background: var(--accent); }

.spark { width: 96px; height: 26px; flex: none; }
.spark polyline { fill: none; stroke: var(--accent); stroke-width: 1.5; stroke-linejoin: round; opacity: 0.85; }

.segments { display: inline-flex; border: 1px solid var(--line-strong); border-radius: 8px; overflow: hidden; }
.segments button { border: 0; border-radius: 0; min-height: 30px; padding: 4px 12px; color: var(--soft); }
.segments button + button { border-left: 1px solid var(--line); }
.segments button[aria-pressed="true"] { background: var(--accent-soft); color: var(--accent); font-weight: 600; }

.chips { display: flex; flex-wrap: wrap; gap: 6px; }
.chip {
  display: inline-flex; align-items: center; gap: 7px; padding: 2px 10px; min-height: 26px; border-radius: 99px;
  border: 1px solid var(--line); background: var(--surface); font-size: 12px; color: var(--soft);
  white-space: normal; text-align: left; max-width: 100%;
}
.chips.compared { margin-top: 12px; }
.chips.compared:empty { display: none; }
.chips.compared .chip { color: var(--text); }
.chip .drop { color: var(--faint); font-size: 15px; line-height: 1; }
.chip .drop:hover { color: var(--bad); }
.swatch { display: inline-block; width: 10px; height: 10px; border-radius: 3px; flex: none; }
.swatch.quiet { height: 2px; border-radius: 1px; opacity: 0.6; }

.picker { position: relative; }
.picker summary { list-style: none; cursor: pointer; }
.picker summary::-webkit-details-marker { display: none; }
.popover {
  position: absolute; right: 0; top: calc(100% + 6px); z-index: 20; width: min(360px, 82vw); max-height: 60vh;
  overflow-y: auto; padding: 6px; background: var(--surface); border: 1px solid var(--line-strong);
  border-radius: 10px; box-shadow: 0 8px 30px rgb(0 0 0 / 18%);
}
.popover label { display: flex; align-items: center; gap: 8px; padding: 6px 8px; border-radius: 6px; cursor: pointer; }
.popover label:hover { background: var(--sunken); }
.popover .folder { margin-right: -8px; }

.overview .title { align-items: baseline; margin-bottom: 14px; }
.runs { padding: 0; overflow: hidden; }
.run-row {
  display: grid; align-items: center; gap: 16px; padding: 10px 16px; border-top: 1px solid var(--line);
  grid-template-columns: 18px minmax(160px, 2fr) 92px minmax(130px, 1fr) 176px 176px 84px 96px;
}
.run-row:first-child { border-top: 0; }
.run-row.head { padding: 8px 16px; color: var(--soft); font-size: 12px; font-weight: 600; background: var(--sunken); }
.run-row.head span:nth-last-child(-n + 2) { text-align: right; }
.run-row:not(.head):hover { background: var(--sunken); }
.run-row .name { font-weight: 600; }
.run-row .name:hover .own { color: var(--accent); }
.pick { display: flex; }
.progress-cell { display: grid; gap: 4px; font-size: 12px; color: var(--soft); }
.headline { display: flex; align-items: center; gap: 12px; color: var(--soft); }
.headline .number { min-width: 56px; color: var(--text); }
.headline .caption { display: none; }
.per-step, .ago { color: var(--soft); font-size: 13px; }

.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(150px, 1fr)); gap: 10px; margin-bottom: 14px; }
.tiles:empty { display: none; }
.tile {
  display: grid; grid-template-columns: 1fr; gap: 1px; padding: 11px 14px 8px; background: var(--surface);
  border: 1px solid var(--line); border-radius: 12px; box-shadow: var(--shadow); min-width: 0;
}
.tile .label { color: var(--soft); font-size: 12px; }
.tile strong { font-size: 21px; font-weight: 640; letter-spacing: -0.015em; line-height: 1.25; }
.tile .spark { width: 100%; height: 28px; margin-top: 4px; }

.warnings { display: grid; gap: 8px; margin-bottom: 18px; }
.warning { border: 1px solid var(--line); border-left: 3px solid var(--warn); border-radius: 10px; background: var(--surface); }
.warning.serious { border-left-color: var(--bad); }
.warning summary { display: flex; align-items: center; gap: 10px; padding: 9px 14px; cursor: pointer; list-style: none; }
.warning summary::-webkit-details-marker { display: none; }
.warning summary::after {
  content: ""; width: 7px; height: 7px; border: solid var(--faint); border-width: 0 1.5px 1.5px 0;
  transform: rotate(45deg); margin: -4px 2px 0 4px;
}
.warning[open] summary::after { transform: rotate(225deg); margin-top: 3px; }
.warning .mark {
  flex: none; width: 20px; height: 20px; border-radius: 50%; display: grid; place-items: center; font-size: 12px;
  font-weight: 700; background: var(--warn-soft); color: var(--warn);
}
.warning.serious .mark { background: var(--bad-soft); color: var(--bad); }
.warning strong { font-weight: 600; }
.warning .since { margin-left: auto; color: var(--soft); font-size: 12px; white-space: nowrap; }
.warning > :not(summary) { margin: 0 14px 8px 44px; max-width: 80ch; }
.warning ol { padding-left: 18px; }
.warning li { margin: 3px 0; }
.warning code, .truth code { background: var(--sunken); border-radius: 5px; padding: 1px 5px; }

.slider { display: inline-flex; align-items: center; gap: 10px; color: var(--soft); font-size: 13px; }
.slider output { min-width: 30px; color: var(--text); }
.curves > .toolbar {
  position: sticky; top: 0; z-index: 10; background: var(--bg); padding: 8px 0; margin: 0 0 8px;
}
.sections > section { margin-bottom: 26px; }
.grid { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 380px), 1fr)); gap: 14px; }
.grid > :only-child { max-width: 780px; }
.chart { display: flex; flex-direction: column; padding: 13px 14px 6px; }
.chart .meaning { color: var(--faint); font-size: 12px; min-height: 18px; }
.legend { display: flex; flex-wrap: wrap; gap: 2px 16px; margin: 4px 0 4px; min-height: 20px; font-size: 12.5px; }
.key { display: inline-flex; align-items: center; gap: 6px; min-width: 0; }
.key .label { color: var(--soft); overflow: hidden; text-overflow: ellipsis; white-space: nowrap; max-width: 210px; }
.key .value { font-weight: 600; min-width: 44px; }
.plot { height: 190px; margin-top: auto; }
.u-select { background: rgba(var(--heat), 0.14); }
.u-cursor-x { border-right: 1px dashed var(--faint) !important; }

.timeline { display: grid; gap: 14px; }
.timeline .legend { margin-top: 8px; }
.bars { display: block; width: 100%; height: 220px; margin-top: 10px; cursor: crosshair; touch-action: pan-y; }
.lane { display: grid; grid-template-columns: 160px 1fr 76px; align-items: center; gap: 12px; padding: 3px 0; font-size: 13px; }
.lane .label { color: var(--soft); }
.lane .track { display: block; height: 14px; background: var(--sunken); border-radius: 4px; overflow: hidden; }
.lane .bar { display: block; height: 100%; border-radius: 3px; }
.lane .value { text-align: right; white-space: nowrap; }
.step-card > header, .timeline .card > header { margin-bottom: 8px; }
table { border-collapse: collapse; width: 100%; font-size: 13px; }
th { text-align: left; font-weight: 550; }
thead th { color: var(--soft); font-size: 12px; font-weight: 600; }
.numbers th, .numbers td { padding: 6px 8px; border-top: 1px solid var(--line); }
.numbers thead th { border-top: 0; }
.numbers td, .numbers thead th:not(:first-child) { text-align: right; }
.numbers .swatch { margin-right: 9px; }

.keys th, .keys td { padding: 5px 10px 5px 0; border-top: 1px solid var(--line); vertical-align: top; }
.keys thead th { border-top: 0; white-space: nowrap; }
.keys thead .swatch { margin-right: 7px; }
.keys tbody th { font: 12.5px/1.6 var(--mono); color: var(--soft); width: 40%; }
.keys td { font: 12.5px/1.6 var(--mono); }
.keys td.missing { color: var(--faint); }
.keys td.number { text-align: left; color: var(--series-0); }
.keys td.boolean { color: var(--series-3); }
.keys tr.differs td { font-weight: 600; }

.stepper { display: inline-flex; align-items: center; gap: 6px; flex: 1 1 320px; max-width: 560px; min-width: 0; }
.stepper input { flex: 1; min-width: 60px; }
.stepper button { padding: 2px 9px; min-height: 30px; }
.stepper output { min-width: 92px; font-weight: 600; white-space: nowrap; }
.toolbar.second { margin-top: -4px; }
.scales { color: var(--soft); font-size: 12px; margin-left: auto; }
.scale { display: none; align-items: center; gap: 3px; }
.scale > i { width: 18px; height: 12px; border-radius: 3px; background: var(--sunken); margin: 0 1px; }
[data-colour="advantage"] .scale.advantage, [data-colour="surprise"] .scale.surprise,
[data-colour="entropy"] .scale.entropy { display: inline-flex; }
.rollouts-body { display: grid; grid-template-columns: 280px minmax(0, 1fr); gap: 16px; align-items: start; }
.groups { display: grid; gap: 6px; position: sticky; top: 8px; max-height: calc(100vh - 16px); overflow-y: auto; padding: 1px; }
.group-pick { white-space: normal; text-align: left; display: grid; gap: 5px; padding: 9px 12px; border-color: var(--line); border-radius: 10px; }
.group-pick[aria-pressed="true"] { border-color: var(--accent); background: var(--accent-soft); }
.group-pick .text { display: -webkit-box; -webkit-line-clamp: 2; -webkit-box-orient: vertical; overflow: hidden; }
.strip { display: flex; align-items: center; gap: 8px; font-size: 12px; }
.strip b { margin-left: auto; }
.dots { display: inline-flex; flex-wrap: wrap; gap: 3px; }
.dots i { width: 8px; height: 8px; border-radius: 50%; background: var(--line-strong); }
.dots i.high { background: var(--good); }
.dots i.low { background: var(--bad); opacity: 0.75; }
.group, .history { display: grid; gap: 14px; min-width: 0; }
.prompt pre { white-space: pre-wrap; max-height: 220px; overflow-y: auto; margin-top: 6px; color: var(--text); }
.truth { display: flex; gap: 10px; align-items: baseline; margin-top: 10px; font-size: 13px; }
.truth span { color: var(--soft); }
.tag { font-size: 12px; color: var(--soft); background: var(--sunken); border-radius: 6px; padding: 1px 7px; }
.tags { display: flex; flex-wrap: wrap; gap: 5px; margin: 6px 0 8px; }
.responses { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 250px), 1fr)); gap: 12px; align-items: start; }
.response header { align-items: center; }
.response .score { font-size: 16px; }
.response.best { border-top: 3px solid var(--good); padding-top: 12px; }
.response.worst { border-top: 3px solid var(--bad); padding-top: 12px; }
.tokens { font: 13px/1.75 var(--mono); white-space: pre-wrap; max-height: 420px; overflow-y: auto; }
.t { border-radius: 3px; padding: 1px 0; }
.t:hover { outline: 1px solid var(--faint); }
.t.given { color: var(--faint); }
.role { display: block; font: 600 11px/1.8 var(--font); color: var(--soft); margin-top: 4px; }
.t.hit { text-decoration: underline 2px var(--series-1); text-underline-offset: 3px; }
${shades("advantage", "up", "--up", [0.14, 0.26, 0.38, 0.5])}
${shades("advantage", "down", "--down", [0.14, 0.26, 0.38, 0.5])}
${shades("surprise", "p", "--down", [0.1, 0.2, 0.32, 0.45, 0.62])}
${shades("entropy", "e", "--heat", [0.1, 0.2, 0.3, 0.42, 0.56])}
.tip {
  position: fixed; z-index: 30; display: grid; gap: 2px; padding: 7px 10px; font-size: 12px; max-width: 280px;
  background: var(--text); color: var(--bg); border-radius: 8px; pointer-events: none;
}
.tip span { display: flex; justify-content: space-between; gap: 18px; }
.tip i { font-style: normal; opacity: 0.7; }
.tip code { color: inherit; white-space: pre-wrap; }
.results {
  border: 1px solid var(--line); border-radius: 12px; background: var(--surface); margin-bottom: 14px; max-height: 320px;
  overflow-y: auto; padding: 4px;
}
.results header { display: flex; gap: 8px; align-items: center; padding: 4px 6px 4px 10px; }
.results header button { min-height: 26px; padding: 1px 9px; }
.hit-row {
  display: grid; grid-template-columns: 190px minmax(0, 1fr) 50px; gap: 12px; width: 100%; text-align: left; border: 0;
  background: none; padding: 5px 10px;
}
.hit-row:hover { background: var(--sunken); }
.hit-row .where { color: var(--soft); font-size: 12px; }
.hit-row .excerpt { font: 12.5px/1.6 var(--mono); white-space: nowrap; overflow: hidden; text-overflow: ellipsis; }
.hit-row b { text-align: right; }
mark { background: rgba(var(--heat), 0.25); color: inherit; border-radius: 3px; }

.validation { display: grid; grid-template-columns: minmax(0, 1fr) minmax(0, 1fr); gap: 16px; align-items: start; }
.validation .segments { margin-top: 10px; }
.validation > .card { position: sticky; top: 8px; }
.validation > .card .scroll { max-height: calc(100vh - 130px); overflow-y: auto; margin-top: 10px; }
.matrix { width: auto; border-spacing: 2px; border-collapse: separate; }
.matrix thead th {
  position: sticky; top: 0; z-index: 2; background: var(--surface); text-align: center; font-weight: 500; padding: 0 2px;
  min-width: 40px; white-space: nowrap;
}
.matrix thead th:first-child { left: 0; z-index: 3; text-align: left; }
.matrix tbody th { position: sticky; left: 0; background: var(--surface); z-index: 1; }
.matrix tbody th button {
  width: 236px; text-align: left; white-space: nowrap; overflow: hidden; text-overflow: ellipsis; border-color: transparent;
  min-height: 28px; padding: 2px 8px;
}
.matrix tr.chosen th button { background: var(--accent-soft); color: var(--accent); }
.cell { width: 100%; min-height: 28px; padding: 0 4px; border: 0; font-size: 12px; text-align: center; border-radius: 5px; }
.cell.none { background: var(--sunken); color: var(--faint); }
${[0.04, 0.18, 0.34, 0.52, 0.72].map((alpha, i) => `.cell.shade${i} { background: rgba(var(--up), ${alpha}); }`).join("\n")}
.at-step > h3 { margin-bottom: 8px; }
.at-step.chosen > h3 { color: var(--accent); }

@media (max-width: 1180px) {
  .run-row { grid-template-columns: 18px minmax(140px, 2fr) 92px minmax(110px, 1fr) 170px 90px; }
  .run-row > :nth-child(6), .run-row > :nth-child(7) { display: none; }
}
@media (max-width: 860px) {
  .rollouts-body { grid-template-columns: minmax(0, 1fr); }
  .groups { position: static; grid-auto-flow: column; grid-auto-columns: minmax(200px, 70%); overflow-x: auto; padding-bottom: 6px; }
  .scales { margin-left: 0; }
  .validation { grid-template-columns: minmax(0, 1fr); }
  .validation > .card { position: static; }
  .validation > .card .scroll { max-height: 45vh; }
}
@media (max-width: 640px) {
  .run-row.head { display: none; }
  .run-row { grid-template-columns: 18px 1fr auto; gap: 6px 10px; padding: 12px; }
  .run-row > .pick { grid-row: 1; }
  .run-row > .name { grid-column: 2; }
  .run-row > .state { grid-column: 3; justify-self: end; }
  .run-row > .progress-cell { grid-column: 2 / -1; }
  .run-row > .headline { grid-column: 2 / -1; justify-content: space-between; }
  .run-row > .headline .caption { display: inline; flex: 1; }
  .run-row > :nth-child(6):not(:empty) { display: flex; }
  .run-row > .ago { grid-column: 2 / -1; text-align: left; }
  .tiles { grid-template-columns: repeat(2, minmax(0, 1fr)); gap: 8px; }
  .tile strong { font-size: 19px; }
  .tile:first-child:nth-last-child(odd) { grid-column: span 2; }
  .warning > :not(summary) { margin-left: 14px; }
  .warning summary { display: grid; grid-template-columns: 20px 1fr auto; gap: 0 10px; }
  .warning .since { grid-area: 2 / 2; margin: 0; }
  .warning summary::after { grid-area: 1 / 3; }
  .slider { flex: 1 1 100%; }
  .slider input { flex: 1; min-width: 0; }
  .lane { grid-template-columns: 110px 1fr 62px; gap: 8px; font-size: 12px; }
  .segments { width: 100%; }
  .segments button { flex: 1; padding: 4px 2px; font-size: 12.5px; }
  .stepper { flex-basis: 100%; }
  .matrix tbody th button { width: 140px; }
  .hit-row { grid-template-columns: 1fr; gap: 0; }
  .hit-row b { display: none; }
}
`;

/** Backgrounds of growing strength for the levels of a colour scale, in the text and in the legend. */
function shades(colouring: string, name: string, color: string, strengths: readonly number[]): string {
  return strengths
    .map((alpha, i) => `[data-colour="${colouring}"] .${name}${i + 1} { background: rgba(var(${color}), ${alpha}); }`)
    .join("\n");
}
