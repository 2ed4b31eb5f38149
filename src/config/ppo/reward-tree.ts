/**
 * What scores the responses of a run, as a tree: for each data source a list of parts with weights.
 *
 * `reward.sources` is such a tree. Without it the tree has one part for all data sources: the function of
 * `custom_reward_function`, the reward model of `reward_model.enable`, the judge, the service, or the built-in scorers.
 */
import type { Scorer } from "../../rewards/rewards.ts";
import { scorerOf } from "../../rewards/scorers.ts";
import { nearest, UserError, unknownName } from "../../util/errors.ts";
import { own } from "../schema.ts";
import { ALL_SOURCES, columnName, type RewardEntry } from "./reward-sources.ts";
import type { PpoConfig, RewardModelValues } from "./tree.ts";

/** A part whose scorer is called with samples. */
type CalledPart<Use> = { readonly use: Use; readonly scorer: Scorer };
/** A part that is a model, here or behind an address. */
type ModelledPart<Use> = { readonly use: Use; readonly model: RewardModelValues };

/** One way to score samples, opened once for all data sources that use it. */
export type RewardPart = {
  /** The config key that describes it: `custom_reward_function`, `reward_model`, `reward.models.NAME`, … */
  readonly key: string;
} & (
  | CalledPart<"function">
  | CalledPart<"scorer">
  | ModelledPart<"model">
  | ModelledPart<"judge">
  | ModelledPart<"service">
);

/** The parts of one way. */
export type PartOf<Use extends RewardPart["use"]> = Extract<RewardPart, { readonly use: Use }>;

/** A part in the list of a data source. */
export type WeightedPart = {
  readonly part: RewardPart;
  readonly weight: number;
  /** The column of its score; null where it is the only part and no tree was given. */
  readonly column: string | null;
};

export type RewardTree = {
  /** Each part once. */
  readonly parts: readonly RewardPart[];
  /** By data source; `*` stands for all others. */
  readonly sources: ReadonlyMap<string, readonly WeightedPart[]>;
};

/** The tree of a config; a `UserError` where it is not clear what scores. */
export function rewardTree(config: PpoConfig): RewardTree {
  const { sources } = config.reward;
  if (sources === null) {
    const part = onlyPart(config);
    return { parts: [part], sources: new Map([[ALL_SOURCES, [{ part, weight: 1, column: null }]]]) };
  }
  const parts = new Map<string, RewardPart>();
  const weighted = (entry: RewardEntry): WeightedPart => {
    const id = `${entry.use} ${entry.name ?? ""}`;
    const part = parts.get(id) ?? namedPart(config, entry);
    parts.set(id, part);
    return { part, weight: entry.weight, column: columnName(entry) };
  };
  const lists = Object.entries(sources).map(([source, entries]) => [source, entries.map(weighted)] as const);
  return { parts: [...parts.values()], sources: new Map(lists) };
}

/** The parts that score a data source; a `UserError` where there is none. */
export function partsFor({ sources }: RewardTree, dataSource: string): readonly WeightedPart[] {
  const found = sources.get(dataSource) ?? sources.get(ALL_SOURCES);
  if (found !== undefined) return found;
  const close = nearest(dataSource, sources.keys()).map((name) => `"${name}"`);
  throw new UserError(
    `The data source "${dataSource}" has no entry in \`reward.sources\`, which has ${[...sources.keys()].join(", ")}. ` +
      (close.length > 0 ? `Did you mean ${close.join(" or ")}? ` : "") +
      "Add one, or `*` for all other data sources.",
  );
}

/** Check that each data source can be scored, as far as that is known before anything starts. */
export function checkDataSource(tree: RewardTree, dataSource: string): void {
  for (const { part, column } of partsFor(tree, dataSource))
    if (column !== null && part.use === "scorer" && part.scorer.kind === "builtin")
      scorerOf(dataSource, part.scorer.name ?? null);
}

/** The reward models that the run opens. */
export const modelParts = (config: PpoConfig): PartOf<"model">[] =>
  rewardTree(config).parts.filter((part) => part.use === "model");

/** The servers that a reward function may ask: those of `reward_model`, the judge's before the service's. */
export function routedServers(config: PpoConfig): PartOf<"judge" | "service"> | null {
  const { reward_model: model } = config;
  if (!rewardTree(config).parts.some(({ use }) => use === "function")) return null;
  const use = (["judge", "service"] as const).find((way) => model[way].url.length > 0);
  return use === undefined ? null : { use, key: "reward_model", model };
}

/** Whether a server runs the reward model: it is sent the conversation in the model's own chat template. */
export const isServed = ({ use, model }: ModelledPart<RewardPart["use"]>): boolean =>
  use === "service" && model.service.protocol !== "json";

/** The part of an entry. */
function namedPart(config: PpoConfig, { use, name }: RewardEntry): RewardPart {
  switch (use) {
    case "scorer":
      if (name !== null) scorerOf("", name); // it must exist
      return { use, key: "reward.sources", scorer: { kind: "builtin", ...(name !== null && { name }) } };
    case "function":
      return name === null ? customPart(config) : functionPart(config, name);
    case "model":
    case "judge":
    case "service":
      return { use, ...modelOf(config, name) };
    default:
      return use satisfies never;
  }
}

function functionPart({ reward, reward_manager: manager }: PpoConfig, name: string): RewardPart {
  const functions = reward.functions ?? {};
  const found = own(functions, name);
  if (found === undefined) throw unknown("function", "reward.functions", name, Object.keys(functions));
  const key = `reward.functions.${name}`;
  if (found.path === null) throw new UserError(`\`${key}.path\` names no file. Set it to the file with the function.`);
  return {
    use: "function",
    key,
    scorer: {
      kind: "file",
      key,
      path: found.path,
      name: found.name,
      kwargs: found.reward_kwargs,
      isBatch: isBatch(manager),
    },
  };
}

/** The function of `custom_reward_function`, for an entry that needs it. */
function customPart(config: PpoConfig): RewardPart {
  const scorer = customScorer(config);
  if (scorer !== null) return { use: "function", key: "custom_reward_function", scorer };
  throw new UserError(
    "`reward.sources` has an entry with `use`=function and no `name`, and there is no `custom_reward_function`. " +
      "Set custom_reward_function.path, or name one of `reward.functions`.",
  );
}

function customScorer({ custom_reward_function: custom, reward_manager: manager }: PpoConfig): Scorer | null {
  const { path, name, reward_kwargs: kwargs } = custom;
  return path === null ? custom.function : { kind: "file", path, name, kwargs, isBatch: isBatch(manager) };
}

function modelOf({ reward, reward_model: model }: PpoConfig, name: string | null) {
  if (name === null) return { key: "reward_model", model };
  const models = reward.models ?? {};
  const found = own(models, name);
  if (found === undefined) throw unknown("model", "reward.models", name, Object.keys(models));
  return { key: `reward.models.${name}`, model: found };
}

function unknown(what: string, branch: string, name: string, known: readonly string[]): UserError {
  if (known.length > 0) return unknownName(`The name of a ${what} in \`reward.sources\``, name, known);
  return new UserError(
    `\`reward.sources\` names the ${what} "${name}", and there is no \`${branch}.${name}\`. Set its keys there.`,
  );
}

const isBatch = ({ source, name }: PpoConfig["reward_manager"]): boolean => source === "register" && name === "batch";

/** The part that scores everything where no tree is given. */
function onlyPart(config: PpoConfig): RewardPart {
  const { reward_model: model } = config;
  const scorer = customScorer(config);
  const key = "reward_model";
  // Beside a function, a judge's or a service's address is what the function may ask.
  const isAlone = scorer === null;
  const ways: readonly (readonly [key: string, part: RewardPart | null])[] = [
    ["custom_reward_function", scorer === null ? null : { use: "function", key: "custom_reward_function", scorer }],
    ["reward_model.enable", model.enable ? { use: "model", key, model } : null],
    ["reward_model.judge.url", !isAlone || model.judge.url.length === 0 ? null : { use: "judge", key, model }],
    ["reward_model.service.url", !isAlone || model.service.url.length === 0 ? null : { use: "service", key, model }],
  ];
  const set = ways.flatMap(([setBy, part]) => (part === null ? [] : [{ setBy, part }]));
  if (set.length > 1) {
    const listed = set.map(({ setBy }) => `\`${setBy}\``).join(" and ");
    throw new UserError(
      `${listed} both choose what scores a response. Keep one of them, or say with \`reward.sources\` which scores what, ` +
        `for example reward.sources={'*':[${set.map(({ part }) => `{use:${part.use},weight:1}`).join(",")}]}.` +
        (isAlone ? "" : " A function that asks the model itself gets its server by reward_model.judge.url instead."),
    );
  }
  return set[0]?.part ?? { use: "scorer", key: "reward.sources", scorer: { kind: "builtin" } };
}
