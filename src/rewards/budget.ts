/**
 * How many rewards may fail before a run stops: a share of the last thousand.
 *
 * With fewer than a thousand scores so far, it is a share of those. At 1 %, one failure among the first hundred scores
 * stops the run, so a mistake in the reward function shows at once. Hours later, a judge that is unreachable for a
 * moment does not stop the run. A longer outage does: it fills the window.
 */
import { UserError } from "../util/errors.ts";
import { describeFailure, type Failure } from "./outcome.ts";

const WINDOW = 1000;
/** How many failures a message shows. */
const SHOWN = 3;
/** How many failures are kept. */
const KEPT = 1000;

/** Counts outcomes, and gives an error once too many of them are failures. */
export class ErrorBudget {
  readonly share: number;
  /** The latest failures, oldest first. */
  readonly failures: Failure[] = [];
  scored = 0;
  failed = 0;
  readonly #window = new Uint8Array(WINDOW); // 1 = failed; a ring buffer
  #failedInWindow = 0;

  constructor(share: number) {
    if (!(share >= 0 && share <= 1))
      throw new UserError(`The error budget is ${share}. It is a share of the rewards, from 0 (none may fail) to 1.`);
    this.share = share;
  }

  /** Count one outcome; returns the error to stop with once there are too many failures. */
  add(failure: Failure | undefined): UserError | null {
    const place = (this.scored + this.failed) % WINDOW;
    this.#failedInWindow += (failure === undefined ? 0 : 1) - (this.#window[place] ?? 0);
    this.#window[place] = failure === undefined ? 0 : 1;
    if (failure === undefined) {
      this.scored++;
      return null;
    }
    this.failed++;
    this.failures.push(failure);
    if (this.failures.length > KEPT) this.failures.shift();
    const recent = Math.min(this.scored + this.failed, WINDOW);
    return this.#failedInWindow > this.share * recent ? this.#error(recent) : null;
  }

  #error(recent: number): UserError {
    const told = this.failures.slice(-SHOWN).map(describeFailure);
    return new UserError(
      `${this.#failedInWindow} of the last ${recent} rewards could not be computed, and ${percent(this.share)} may ` +
        `fail (\`reward.error_budget\`): ${told.join("; ").replace(/\.$/, "")}. ` +
        "Fix the reward function or the rows, or raise `reward.error_budget` to train without such samples.",
    );
  }
}

function percent(share: number): string {
  return share === 0 ? "none" : `at most ${Number((share * 100).toPrecision(3))} %`;
}
