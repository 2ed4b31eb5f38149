/** Work on several items at the same time, up to a limit. */

/**
 * Do `work` for every item, `limit` of them at a time, started in order. The first error stops all: the signal that the
 * others were given is aborted, and the error is thrown once they have ended.
 */
export async function inFlight<T>(
  items: readonly T[],
  { limit, signal }: { readonly limit: number; readonly signal: AbortSignal },
  work: (item: T, signal: AbortSignal) => Promise<void>,
): Promise<void> {
  const failure = new AbortController();
  const either = AbortSignal.any([signal, failure.signal]);
  const queue = items.values();
  const errors: unknown[] = [];
  const worker = async (): Promise<void> => {
    for (const item of queue) {
      if (either.aborted) return;
      try {
        await work(item, either);
      } catch (error) {
        errors.push(error);
        failure.abort();
        return;
      }
    }
  };
  await Promise.all(Array.from({ length: Math.min(limit, items.length) }, worker));
  signal.throwIfAborted();
  if (errors.length > 0) throw errors[0];
}
