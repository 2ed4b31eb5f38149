/**
 * The reference page of the config, made from the schemas; `node scripts/docs.ts` writes it to docs/config.md.
 *
 * Everything on the page comes from the schemas: a new key appears by itself.
 */
import { type Field, mandatory } from "../util/field.ts";
import { type AnySchema, engineKey, fieldsOf, type Variant } from "./schema.ts";
import { formatValue } from "./value.ts";

/** The page for some verbs. */
export function configReference(schemas: readonly AnySchema[]): string {
  return `${[introduction, ...schemas.map(section)].join("\n\n")}\n`;
}

/** A default as it would be written on the command line. */
export function showDefault(value: unknown): string {
  return value === mandatory ? "must be given" : typeof value === "string" ? value : formatValue(value);
}

const introduction = `<!-- Made by scripts/docs.ts from the schemas in src/config; do not edit. -->

# Config reference

Keys are set, later wins, by their defaults, by a config file and on the command line:

\`\`\`sh
npx trainyard sft run.yaml data.train_batch_size=32 'trainer.logger=[console,file]'
\`\`\`

- \`key=value\`, \`+key=value\`, \`++key=value\` and \`--key value\` set a key, \`~key\` deletes one. Values: \`1e-5\`, \`true\`, \`null\`, \`[1,2]\`, \`{a: 1}\`, \`'quoted text'\`.
- A config file is YAML in Hydra's style (\`defaults\` lists, \`\${another.key}\`, \`\${oc.select:key,default}\`, \`\${oc.env:NAME,default}\`, \`???\`), JSON, or TypeScript with \`defineConfig\` (\`ppo\`), \`defineSft\`, \`defineRewardModel\`, \`defineGenerate\` or \`defineEval\`. It is named as an argument, or by \`--config-path\` and \`--config-name\`; \`trainyard.config.ts\` is read when no other is named, unless it is one of another verb.
- \`--dry-run\` prints the resolved config, then models, memory and the time of a step, and stops; \`--cfg job\` prints the config alone.`;

function section(schema: AnySchema): string {
  const parts = [`## trainyard ${schema.verb}`];
  let group = "";
  let rows: string[][] = [];
  const flush = () => {
    if (rows.length > 0) parts.push(`### ${group}`, table(["key", "default", "takes", "meaning"], rows));
    rows = [];
  };
  for (const [key, field] of fieldsOf(schema.fields)) {
    const first = key.split(".")[0] ?? key;
    if (first !== group) flush();
    group = first;
    rows.push(fieldRow(key, field));
  }
  flush();
  const engines = Object.entries(schema.engines ?? {}).flatMap(([name, variant]) => engineKeys(name, variant));
  return [...parts, ...engines, ...namedKeys(schema), ...registeredKeys(schema), ...otherKeys(schema)].join("\n\n");
}

/** Keys that only one engine has. */
function engineKeys(name: string, { fields, aliases }: Variant): string[] {
  const rows = [...fieldsOf(fields)].map(([key, field]) => fieldRow(key, field));
  const spellings = Object.entries(aliases).map(([alias, key]) => `${code(alias)} is ${code(key)}`);
  return [
    `### Keys that count with ${engineKey}=${name}`,
    table(["key", "default", "takes", "meaning"], rows),
    ...(spellings.length === 0 ? [] : [`Other spellings: ${spellings.join(", ")}.`]),
  ];
}

/** Keys below names that the config chooses. */
function namedKeys({ named = [] }: AnySchema): string[] {
  if (named.length === 0) return [];
  const rows = named.map(({ branch, doc, fields }) => [
    code(`${branch}.NAME`),
    doc,
    [...fieldsOf(fields).keys()].map(code).join(", "),
  ]);
  return ["### Keys below names of your own", table(["branch", "holds", "keys below each name"], rows)];
}

/** Where a program may add keys. */
function registeredKeys({ registered = [] }: AnySchema): string[] {
  if (registered.length === 0) return [];
  const rows = registered.map(({ branch, doc }) => [code(`${branch}.NAME.KEY`), doc]);
  return [
    "### Keys of your own algorithms",
    "An estimator or a loss that a config file registers declares its keys, each with type, default and meaning. NAME is its name. `--help` behind the config file lists them, and unknown ones are refused as everywhere.",
    table(["key", "meaning"], rows),
  ];
}

function fieldRow(key: string, { type, default: value, doc }: Field<unknown, unknown>): string[] {
  return [code(key), value === mandatory ? "**must be given**" : code(showDefault(value)), type.expects, doc];
}

function otherKeys(schema: AnySchema): string[] {
  const aliases = Object.entries(schema.aliases).map(([alias, key]) => [code(alias), code(key)]);
  const inert = Object.entries(schema.inert).map(([key, { instead }]) => [code(key), instead]);
  const refused = Object.entries(schema.refused).map(([key, { because, allowed }]) => [
    code(key),
    allowed.map((value) => code(formatValue(value))).join(", "),
    because,
  ]);
  const groups = Object.entries(schema.groups).map(([group, choices]) => [
    code(group),
    Object.keys(choices).map(code).join(", "),
  ]);
  const configs = Object.entries(schema.configs).flatMap(([name, defaults]) =>
    Object.entries(defaults).map(([key, value]) => [code(name), code(key), code(showDefault(value))]),
  );
  return [
    "### Defaults that differ in verl's other configs",
    table(["config", "key", "default"], configs),
    "### Other spellings",
    table(["key", "is"], aliases),
    "### Keys of verl without effect here",
    schema.engines === undefined
      ? "They are accepted, with all keys below them, and named when they are used."
      : `They are accepted, with all keys below them, and named when they are used. With another ${code(engineKey)} the reason may be another one, and its own keys count.`,
    table(["key", "instead"], inert),
    "### Keys of verl that only take the value that switches them off",
    table(["key", "takes", "otherwise"], refused),
    "### Config groups",
    table(["group", "choices"], groups),
  ];
}

function code(text: string): string {
  return `\`${text}\``;
}

function table(header: readonly string[], rows: readonly (readonly string[])[]): string {
  const line = (cells: readonly string[]) => `| ${cells.map((cell) => cell.replaceAll("|", "\\|")).join(" | ")} |`;
  return [line(header), line(header.map(() => "---")), ...rows.map(line)].join("\n");
}
