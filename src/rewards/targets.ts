/**
 * The servers of a judge or of a reward service: several addresses that answer the same calls. A call goes to the least
 * busy one; one that failed is left alone for a while, unless all of them failed.
 */
import { UserError } from "../util/errors.ts";
import { leastBusy } from "../util/http-retry.ts";

export type Target = {
  readonly url: URL;
  inFlight: number;
  /** How many calls it was given. */
  calls: number;
  /** By the clock of `performance.now()`. */
  restsUntil: number;
  /** It failed and has not answered since. */
  isDown: boolean;
};

/** How long a server is left alone after a failure. */
const REST_MS = 10_000;

/** The targets at some addresses; `name` begins the messages about them ("The judge"). */
export function targetsAt(name: string, addresses: readonly string[]): Target[] {
  return addresses.map((address) => ({
    url: checkedUrl(name, address),
    inFlight: 0,
    calls: 0,
    restsUntil: 0,
    isDown: false,
  }));
}

/** Where the next call goes; `failed` is the target that has just failed it. */
export function nextTarget(targets: readonly Target[], failed: Target | null): Target {
  const awake = awakeOf(targets);
  const next = leastBusy(awake.length === 0 ? targets : awake, failed);
  next.calls++;
  return next;
}

/** Leave a target alone for a while, or as long as it asks. Returns whether another one can take the call at once. */
export function restTarget(target: Target, targets: readonly Target[], waitMs = 0): boolean {
  target.restsUntil = performance.now() + Math.max(REST_MS, waitMs);
  target.isDown = true;
  return awakeOf(targets).length > 0;
}

/** It answered. */
export function wakeTarget(target: Target): void {
  target.restsUntil = 0;
  target.isDown = false;
}

const awakeOf = (targets: readonly Target[]): Target[] => {
  const now = performance.now();
  return targets.filter(({ restsUntil }) => restsUntil <= now);
};

function checkedUrl(name: string, address: string): URL {
  const url = URL.canParse(address) ? new URL(address) : null;
  if (url === null || (url.protocol !== "http:" && url.protocol !== "https:"))
    throw new UserError(`${name}'s address is "${address}". It must be a URL such as http://127.0.0.1:8000.`);
  if (url.username !== "" || url.password !== "")
    throw new UserError(
      `${name}'s address holds a user name or password (${url.host}). Leave them out, and give them as the API key.`,
    );
  return url;
}
