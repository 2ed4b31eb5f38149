/**
 * The seam between a worker process and the code it runs: a module of ours, named by its address, that makes the
 * function from settings. The settings are data, because they are sent to the process.
 *
 * A room that wants its calls in a process writes such a module (`rewards/reward-worker.ts` is one) and gives its
 * address to `nodeLane`. A module with several functions takes the name of one as a part of its input. What the function
 * returns is sent back as it is, so the module also checks it.
 */

/** A function that is ready to be called. */
export type Handler<Input, Output> = {
  run(input: Input): Output | PromiseLike<Output>;
  /** The user's file, whose lines messages name; null when there is none. */
  readonly file: string | null;
};

/** What a worker process imports. A `UserError` of `load` is shown to the user as it is. */
export type HandlerModule<Settings, Input, Output> = {
  load(settings: Settings): Promise<Handler<Input, Output>>;
};
