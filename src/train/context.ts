/** What a run is given besides its config. */
export type TrainContext = {
  /** Aborted when the user asks to stop: the run is saved and ends. */
  readonly signal: AbortSignal;
  readonly env: Readonly<Record<string, string | undefined>>;
  /** The config keys that the user has set; the others have their defaults. */
  readonly set?: readonly string[];
};
