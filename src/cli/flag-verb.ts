/** A verb that takes options such as `--port 8000` instead of a config: one table gives values, checks, help and completion. */
import { type Flags, type FlagValues, flagHelp, parseFlags } from "./flags.ts";
import type { Call, Verb } from "./verb.ts";

/** What such a verb is made of. */
export type FlagVerb<T extends Flags> = {
  readonly flags: T;
  /** Its help text; `options` are the lines about the options. */
  help(options: string): string | Promise<string>;
  /** What a shell completes behind it; its options unless something else is given. */
  readonly words?: readonly string[];
  /** Verbs below this one, such as `show` in `trainyard data show`. */
  readonly subverbs?: Readonly<Record<string, () => Promise<{ readonly verb: Pick<Verb, "run"> }>>>;
  /** Whether it shows its help when it is called without an argument. */
  readonly needsArguments?: boolean;
  /** The work; `words` are the arguments that are no options. Returns the exit code. */
  run(given: { readonly flags: FlagValues<T>; readonly words: readonly string[] }, call: Call): Promise<number>;
};

/** Make a verb of its parts. */
export function flagVerb<const T extends Flags>(definition: FlagVerb<T>): Verb {
  const { flags: table, subverbs = {}, needsArguments = false } = definition;
  return {
    schema: null,
    rows: null,
    words: () => definition.words ?? [...Object.keys(table).map((name) => `--${name}`), "--help"],
    async run(call) {
      const [first = "", ...rest] = call.args;
      const load = Object.hasOwn(subverbs, first) ? subverbs[first] : undefined;
      if (load !== undefined) return (await load()).verb.run({ ...call, args: rest });
      const { isHelp, flags, words } = parseFlags(table, call.args);
      if (!isHelp && !(needsArguments && call.args.length === 0)) return definition.run({ flags, words }, call);
      process.stdout.write(await definition.help(flagHelp(table)));
      return 0;
    },
  };
}
