/** The current view as the part of the address after `#`, so that a reload or a shared link shows the same. Pure. */

export const tabs = ["curves", "timeline", "rollouts", "validation", "config"] as const;
export type Tab = (typeof tabs)[number];

export type Route =
  | { readonly page: "runs" }
  | { readonly page: "run"; readonly run: string; readonly tab: Tab; readonly others: readonly string[] };

export function parseRoute(hash: string): Route {
  const [path = "", query = ""] = hash.replace(/^#\/?/, "").split("?");
  const [page, run = "", wanted] = path.split("/").map(decode);
  if (page !== "run" || run === "") return { page: "runs" };
  const tab = tabs.find((it) => it === wanted) ?? "curves";
  return { page: "run", run, tab, others: new URLSearchParams(query).getAll("with") };
}

export function formatRoute(route: Route): string {
  if (route.page === "runs") return "#/";
  const query = new URLSearchParams(route.others.map((other) => ["with", other])).toString();
  return `#/run/${encodeURIComponent(route.run)}/${route.tab}${query === "" ? "" : `?${query}`}`;
}

function decode(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}
