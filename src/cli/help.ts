/** The help text of a verb that takes a config: its usage, and every key with default and meaning, from the schema. */

import { showDefault } from "../config/reference.ts";
import { type AnySchema, engineKey, fieldsOf } from "../config/schema.ts";
import type { Field } from "../util/field.ts";

/** What `trainyard VERB --help` prints. */
export function verbHelp(schema: AnySchema, summary: string, examples: readonly string[]): string {
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
  --dry-run             print the resolved config, the models' memory and a step's time, and stop
  --config-path FOLDER  where the YAML config is
  --config-name NAME    its name, or one of verl's: ${Object.keys(schema.configs).join(", ")}
  --help                this text

  key=value and --key value set a key, ~key deletes it. Lists [a,b], dicts {a: 1}, null, 'quoted text'.

Keys with their defaults (verl's other keys: docs/config.md)
${sections.join("\n\n")}
`;
}
