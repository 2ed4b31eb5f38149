/**
 * The arguments after a verb, as Hydra takes them: overrides, a config file, `--config-path`, `--config-name`, options.
 *
 * `--a.b c` and `--a.b=c` are overrides too. Everything else that begins with a dash must be an option listed here.
 */
import { isConfigFile } from "../config/file.ts";
import { type Entry, parseOverride } from "../config/overrides.ts";
import { nearest, UserError } from "../util/errors.ts";

/** The arguments of a verb by their kind. */
export type Arguments = {
  readonly overrides: readonly Entry[];
  readonly file?: string;
  readonly configPath?: string;
  readonly configName?: string;
  readonly isHelp: boolean;
  readonly isDryRun: boolean;
};

type Draft = { -readonly [K in keyof Arguments]: Arguments[K] } & { overrides: Entry[] };

const optionNames = ["--help", "--dry-run", "--config-path", "--config-name", "--cfg"];
const shortNames: Readonly<Record<string, string>> = {
  "-h": "--help",
  "-cp": "--config-path",
  "-cn": "--config-name",
  "-c": "--cfg",
};

/** Read the arguments of a verb that takes a config; a `UserError` names one that cannot be read. */
export function parseArguments(args: readonly string[]): Arguments {
  const draft: Draft = { overrides: [], isHelp: false, isDryRun: false };
  const queue = [...args];
  for (let argument = queue.shift(); argument !== undefined; argument = queue.shift()) {
    if (/^-[^\d.]/.test(argument)) readOption(draft, argument, queue);
    else if (isConfigFile(argument)) setFile(draft, argument);
    else draft.overrides.push(parseOverride(argument));
  }
  return draft;
}

function readOption(draft: Draft, argument: string, queue: string[]): void {
  const equals = argument.indexOf("=");
  const written = equals === -1 ? argument : argument.slice(0, equals);
  const option = shortNames[written] ?? written;
  const value = (): string => {
    const next = equals === -1 ? queue.shift() : argument.slice(equals + 1);
    if (next === undefined || (equals === -1 && /^--./.test(next))) {
      throw new UserError(`\`${written}\` has no value. Write ${written}=VALUE.`);
    }
    return next;
  };
  if (option === "--help") draft.isHelp = true;
  else if (option === "--dry-run") draft.isDryRun = true;
  else if (option === "--config-path") draft.configPath = value();
  else if (option === "--config-name") draft.configName = value();
  else if (option === "--cfg") readCfg(draft, value());
  else if (option === "--multirun" || option === "-m") {
    throw new UserError(
      `\`${option}\` starts several runs in Hydra. Here one command is one run: call it once per setting.`,
    );
  } else if (isKey(option)) draft.overrides.push(parseOverride(`${option.slice(2)}=${value()}`));
  else {
    const [close] = nearest(option, optionNames, 1);
    throw new UserError(
      `\`${written}\` is no option.${close === undefined ? "" : ` Did you mean ${close}?`} ` +
        `The options are ${optionNames.slice(0, 4).join(", ")}; keys are set as key=value or --key value.`,
    );
  }
}

/** Whether `--a.b` sets a key. One word that is nearly an option is a slip: every key has a dot. */
function isKey(option: string): boolean {
  if (!/^--[A-Za-z_]\w*(\.\w+)*$/.test(option)) return false;
  return option.includes(".") || nearest(option, optionNames, 1).length === 0;
}

/** Hydra's `--cfg job` prints the config, as `--dry-run` does. */
function readCfg(draft: Draft, what: string): void {
  if (what !== "job")
    throw new UserError(`\`--cfg ${what}\` does not exist here; --cfg job and --dry-run print the resolved config.`);
  draft.isDryRun = true;
}

function setFile(draft: Draft, file: string): void {
  if (draft.file !== undefined)
    throw new UserError(`Both ${draft.file} and ${file} are config files. Keep one of them.`);
  draft.file = file;
}
