/**
 * Work that runs one after the other, in the order it was asked for. The calls on one model go through such a queue.
 */

/** Runs work after everything that was asked for before, whether or not that succeeded. */
export type Exclusive = <T>(work: () => Promise<T>) => Promise<T>;

/** A new queue. */
export function exclusive(): Exclusive {
  let last: Promise<unknown> = Promise.resolve();
  return (work) => {
    const result = last.then(work);
    last = result.catch(() => undefined);
    return result;
  };
}
