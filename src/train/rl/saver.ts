/**
 * Saving checkpoints of a run, one at a time: before the next step, or while it samples (`checkpoint.async_save`).
 *
 * In the background, a model's files are begun before the next step; the next update waits until they are written, so a
 * checkpoint never has weights of two steps. The pointer to a checkpoint moves when all of it is written, as always.
 */
import type { TrainingRun } from "../with-run.ts";
import type { RlContext } from "./context.ts";
import { saveRoles, savesInBackground } from "./roles.ts";
import type { RlState } from "./state.ts";

export type Saver = AsyncDisposable & {
  /** Save a checkpoint; in the background, this returns when its files have been begun. */
  save(step: number, state: RlState): Promise<void>;
  /** When the last checkpoint is written; throws if it could not be. */
  saved(): Promise<void>;
};

export function openSaver({ config, roles }: Pick<RlContext, "config" | "roles">, run: TrainingRun): Saver {
  const isBackground = savesInBackground(config);
  let last: Promise<void> = Promise.resolve();
  return {
    async save(step, state) {
      await last;
      const begun = Promise.withResolvers<void>();
      const write = (dir: string) => {
        const written = saveRoles(config, roles, dir);
        begun.resolve();
        return written;
      };
      last = run.save(step, write, structuredClone(state)); // as it is now: it is written last
      last.catch(() => {}); // thrown by the next call that waits for it
      await (isBackground ? Promise.race([begun.promise, last]) : last);
    },
    saved: () => last,
    [Symbol.asyncDispose]: () => last.catch(() => {}), // an error of the step is the one to report
  };
}
