/** The help text of a verb that takes a config: its usage, and every key with default and meaning, from the schema. */
import { showDefault } from "../config/reference.ts";
import { type AnySchema, engineKey, fieldsOf } from "../config/schema.ts";
import type { Field } from "../util/field.ts";

/** What the help of such a verb is made from. */
export type HelpSource = {
  readonly schema: AnySchema;
  readonly examples: readonly string[];
  readonly switches?: Readonly<Record<string, string>>;
};

/** What `trainyard VERB --help` prints. */
export function verbHelp(source: HelpSource, summary: string): string {
  const { schema, examples } = source;
  const keys = [...fieldsOf(schema.fields)];
  const lines = (own: readonly (readonly [string, Field<unknown, unknown>])[]) =>
    own.map(([key, field]) => `  ${key}=${showDefault(field.default)}\n      ${field.doc}`).join("\n");
  const sections = Object.keys(schema.fields).map((section) =>
    lines(keys.filter(([key]) => key.startsWith(`${section}.`))),
  );
  for (const [name, { fields }] of Object.entries(schema.engines ?? {}))
    sections.push(`With ${engineKey}=${name}\n${lines([...fieldsOf(fields)])}`);
  return `trainyard ${schema.verb}: ${summary}

Usage: trainyard ${schema.verb} [CONFIG.yaml|.ts|.json] [key=value …] [options]

${examples.map((example) => `  ${example}`).join("\n")}

Options
${optionRows(source)
  .map(([option, value, doc]) => `  ${`${option} ${value}`.padEnd(20)}  ${doc}`)
  .join("\n")}

  key=value and --key value set a key, ~key deletes it. Lists [a,b], dicts {a: 1}, null, 'quoted text'.

Keys with their defaults (verl's other keys: docs/config.md)
${sections.join("\n\n")}
`;
}

/** The options of a verb that takes a config, as they are written. */
export function optionsOf(source: HelpSource): string[] {
  return optionRows(source).map(([option]) => option);
}

function optionRows({ schema, switches = {} }: HelpSource): (readonly [option: string, value: string, doc: string])[] {
  const configs = Object.keys(schema.configs).join(", ");
  return [
    ["--dry-run", "", "print the resolved config, the models' memory and a step's time, and stop"],
    ["--config-path", "FOLDER", "where the YAML config is"],
    ["--config-name", "NAME", `its name, or one of verl's: ${configs}`],
    ...Object.entries(switches).map(([name, doc]) => [`--${name}`, "", doc] as const),
    ["--help", "", "this text"],
  ];
}
