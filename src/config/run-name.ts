/**
 * The names of a run that nobody has named: the folder of its config file is the project, the file the experiment. On a
 * command line without a file they are verl's, which would give every such run the same folder.
 */
import { basename, dirname, resolve } from "node:path";
import { type AnySchema, defaultOf, fieldsOf } from "./schema.ts";

const project = "trainer.project_name";
const experiment = "trainer.experiment_name";

/** Defaults for the names of a run; none where one of them is given. */
export function runNames(file: string, given: ReadonlySet<string>): Readonly<Record<string, string>> {
  const folder = basename(dirname(resolve(file)));
  const name = basename(file).replace(/(\.config)?\.\w+$/, "");
  if (given.has(project) || given.has(experiment) || folder === "" || name === "") return {};
  return { [project]: folder, [experiment]: name };
}

/** The run folder of a run without names before config files gave them; null for a verb without runs. */
export function formerRunFolder(schema: AnySchema): string | null {
  if (!fieldsOf(schema.fields).has(project)) return null;
  return `checkpoints/${String(defaultOf(schema, project))}/${String(defaultOf(schema, experiment))}`;
}
