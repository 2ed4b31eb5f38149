/** The values of `format` in a JSON schema, as regular expressions of strings that every validator accepts. */
import { regexRule } from "./regex.ts";
import type { Rule } from "./rule.ts";

const year = "[1-9][0-9]{3}";
const date = `${year}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)|02-(?:0[1-9]|1[0-9]|2[0-8]))`;
const clock = "(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\\.[0-9]{1,6})?";
const offset = "(?:Z|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])";
const label = "[a-z0-9]{1,16}(?:-[a-z0-9]{1,16})?";
const host = `${label}(?:\\.${label}){0,3}\\.[a-z]{2,12}`;
const byte = "(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])";

const table: Readonly<Record<string, string>> = {
  "date-time": `${date}T${clock}${offset}`,
  date,
  time: `${clock}${offset}`,
  duration: "P(?:[0-9]{1,4}W|[0-9]{1,4}D(?:T[0-9]{1,4}H)?|T[0-9]{1,4}[HMS])",
  email: `[A-Za-z0-9_+-]{1,32}(?:\\.[A-Za-z0-9_+-]{1,16}){0,2}@${host}`,
  hostname: host,
  ipv4: `${byte}(?:\\.${byte}){3}`,
  ipv6: "[0-9a-f]{1,4}(?::[0-9a-f]{1,4}){7}",
  uuid: "[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}",
  uri: `https?://${host}(?:/[A-Za-z0-9._~-]{1,64}){0,8}`,
};

export const formats: readonly string[] = Object.keys(table);

/** The rule of a format, without quotes; null if it is not known. */
export function formatRule(format: unknown): Rule | null {
  const pattern = typeof format === "string" && Object.hasOwn(table, format) ? table[format] : undefined;
  return pattern === undefined ? null : regexRule(`^${pattern}$`);
}
