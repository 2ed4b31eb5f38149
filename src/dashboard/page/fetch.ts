/** Requests to the server: JSON with the browser's own cache, and columns as bytes. */

import type { RolloutKind, Rollouts } from "../../run/rollouts.ts";
import type {
  MetricInfo,
  PromptHistory,
  RolloutIndex,
  RunConfig,
  RunDetail,
  RunList,
  SearchPage,
  ValidationTable,
} from "../api.ts";
import { type ColumnBlock, decodeColumns } from "./wire.ts";

type Query = Readonly<Record<string, string | number>>;

async function ask(path: string, query: URLSearchParams): Promise<Response> {
  const response = await fetch(`${path}?${query}`);
  if (response.ok) return response;
  const { error } = await response.json().catch(() => ({ error: `${path} answered ${response.status}.` }));
  throw new Error(String(error));
}

/** The server's types are the page's: both are compiled from api.ts. */
async function get<T>(path: string, query: Query = {}): Promise<T> {
  const entries = Object.entries(query).map(([name, value]) => [name, String(value)]);
  const value: T = await (await ask(path, new URLSearchParams(entries))).json();
  return value;
}

export const getRuns = (): Promise<RunList> => get("/api/runs");
export const getRun = (run: string): Promise<RunDetail> => get("/api/run", { run });
export const getMetrics = (run: string): Promise<MetricInfo[]> => get("/api/metrics", { run });
export const getConfig = (run: string): Promise<RunConfig> => get("/api/config", { run });
export const getRolloutIndex = (run: string): Promise<RolloutIndex> => get("/api/rollout-index", { run });
export const getRollouts = (run: string, kind: RolloutKind, step: number): Promise<Rollouts> =>
  get("/api/rollouts", { run, kind, step });
export const getSearch = (run: string, text: string, before: number | null): Promise<SearchPage> =>
  get("/api/search", before === null ? { run, text } : { run, text, before });
export const getValidation = (run: string): Promise<ValidationTable> => get("/api/validation", { run });
export const getPromptHistory = (run: string, key: string): Promise<PromptHistory> =>
  get("/api/validation/prompt", { run, key });

/** Rows of some metrics from `from` on. */
export async function getColumns(
  run: string,
  { names, from, version }: { names: readonly string[]; from: number; version: number },
): Promise<ColumnBlock> {
  const query = new URLSearchParams([
    ["run", run] as [string, string],
    ["from", String(from)] as [string, string],
    ["version", String(version)],
    ...names.map((name): [string, string] => ["name", name]),
  ]);
  return decodeColumns(await (await ask("/api/columns", query)).arrayBuffer());
}
