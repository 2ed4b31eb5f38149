/**
 * A JSON schema as a rule: the JSON texts that are valid by it.
 *
 * Everything that the rule allows is valid; some valid texts are not allowed, such as other orders of properties. A
 * keyword that is not supported is an error with its place in the schema, never ignored. docs/serving.md lists them.
 */
import { UserError } from "../../util/errors.ts";
import { anyArray, anyObject, anyValue, arrayRule, objectRule, otherKey } from "./json-text.ts";
import { choice, literal, oneOf, type Reference, type Rule, reference } from "./rule.ts";
import { countsOf, numberOf, type Schema, stringOf, unsupported, wrong } from "./schema-values.ts";

type Type = "object" | "array" | "string" | "integer" | "number" | "boolean" | "null";

/** Say something about a value without changing which ones are valid. */
const annotations = new Set(
  "title description default examples $schema $id $comment deprecated readOnly writeOnly $defs definitions".split(" "),
);

/** What each type reads; a keyword of another type has no effect, as JSON Schema says. */
const keywordsOf: Readonly<Record<Type, readonly string[]>> = {
  object: ["properties", "required", "additionalProperties", "propertyNames"],
  array: ["items", "prefixItems", "minItems", "maxItems"],
  string: ["minLength", "maxLength", "pattern", "format"],
  integer: ["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"],
  number: ["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"],
  boolean: [],
  null: [],
};
const types = Object.keys(keywordsOf) as Type[]; // the keys of the table above
const whole = ["$ref", "enum", "const", "anyOf", "oneOf", "allOf"];
const known = new Set([...annotations, ...whole, "type", ...Object.values(keywordsOf).flat()]);

/** Schemas, enum values and properties in one schema, and characters of it as JSON. */
const MOST_PARTS = 5_000;
const MOST_CHARACTERS = 400_000;
const MOST_NAME = 500;
const NO_LIMIT = Number.POSITIVE_INFINITY;

/** The rule of a schema; `place` is where the schema stands in the request. */
export function schemaRule(schema: unknown, place: string): Rule {
  const { length } = JSON.stringify(schema) ?? "";
  if (length > MOST_CHARACTERS)
    throw new UserError(`\`${place}\` has ${length} characters as JSON, and ${MOST_CHARACTERS} are possible.`);
  return new Compiler(schema, place).compile();
}

class Compiler {
  readonly #root: unknown;
  readonly #rootPlace: string;
  readonly #references = new Map<string, Reference>();
  /** References without a target yet: they are followed one after the other, however long a chain of them is. */
  readonly #open: (() => void)[] = [];
  #parts = 0;

  constructor(root: unknown, place: string) {
    this.#root = root;
    this.#rootPlace = place;
  }

  compile(): Rule {
    const rule = this.rule(this.#root, this.#rootPlace);
    for (let next = this.#open.pop(); next !== undefined; next = this.#open.pop()) next();
    return rule;
  }

  rule(schema: unknown, place: string): Rule {
    this.#count(1);
    if (schema === true) return anyValue;
    if (!isObject(schema)) {
      const found = schema === false ? "false, which allows no value" : (JSON.stringify(schema) ?? "missing");
      throw new UserError(`\`${place}\` is ${found.slice(0, 80)}; it should be a JSON schema, which is an object.`);
    }
    const keys = Object.keys(schema).filter((key) => schema[key] !== undefined);
    const unknown = keys.find((key) => !known.has(key) && !key.startsWith("x-"));
    if (unknown !== undefined) throw unsupported(`${place}.${unknown}`, `a schema may use ${supportedWords()}.`);
    const [first] = whole.filter((key) => keys.includes(key));
    if (first === undefined) return this.#typed(schema, place);
    const isValue = first === "enum" || first === "const";
    const other = keys.find((key) => key !== first && !annotations.has(key) && !(isValue && key === "type"));
    if (other !== undefined && !other.startsWith("x-"))
      throw unsupported(`${place}.${other}`, `beside \`${first}\` it cannot be used; put it into each option.`);
    if (isValue) return this.#values(first === "const" ? [schema.const] : schema.enum, schema, `${place}.${first}`);
    return first === "$ref" ? this.#refer(schema.$ref, `${place}.$ref`) : this.#options(schema, first, place);
  }

  #count(parts: number): void {
    this.#parts += parts;
    if (this.#parts > MOST_PARTS)
      throw new UserError(`\`${this.#rootPlace}\` has more than ${MOST_PARTS} parts. Use a smaller schema.`);
  }

  #values(values: unknown, schema: Schema, place: string): Rule {
    if (!Array.isArray(values)) throw wrong(place, values, "a list of values");
    this.#count(values.length);
    const allowed = schema.type === undefined ? types : readTypes(schema.type, place);
    const texts = values
      .filter((value) => allowed.some((type) => isOfType(value, type)))
      .map((it) => JSON.stringify(it));
    if (texts.length === 0) throw wrong(place, values, "a list with at least one value of the schema's `type`");
    return oneOf(texts);
  }

  #options(schema: Schema, keyword: string, place: string): Rule {
    const options = schema[keyword];
    if (!Array.isArray(options) || options.length === 0)
      throw wrong(`${place}.${keyword}`, options, "a list of schemas");
    if (keyword === "allOf" && options.length > 1)
      throw unsupported(`${place}.allOf`, "it can only have one schema; write the schemas as one.");
    return choice(options.map((option, i) => this.rule(option, `${place}.${keyword}[${i}]`)));
  }

  /** One rule per definition, also if it refers to itself. */
  #refer(ref: unknown, place: string): Rule {
    if (typeof ref !== "string" || !/^#(\/|$)/.test(ref))
      throw unsupported(
        place,
        `it is ${JSON.stringify(ref)?.slice(0, 80)}; only references within the schema, such as "#/$defs/name", are possible.`,
      );
    const made = this.#references.get(ref);
    if (made !== undefined) return made;
    const rule = reference();
    this.#references.set(ref, rule);
    const keys = ref.split("/").slice(1).map(pointerKey);
    let target: unknown = this.#root;
    for (const key of keys) {
      const isParent = (isObject(target) || Array.isArray(target)) && Object.hasOwn(target, key);
      target = isParent ? Reflect.get(Object(target), key) : undefined;
    }
    if (target === undefined) throw wrong(place, ref, "the place of a schema in this schema");
    this.#open.push(() => {
      rule.target = this.rule(target, [this.#rootPlace, ...keys].join("."));
    });
    return rule;
  }

  #typed(schema: Schema, place: string): Rule {
    const given = schema.type === undefined ? impliedTypes(schema) : readTypes(schema.type, `${place}.type`);
    if (given.length === 0) return anyValue;
    return choice(given.map((type) => this.#rules[type](schema, place)));
  }

  readonly #rules: Readonly<Record<Type, (schema: Schema, place: string) => Rule>> = {
    object: (schema, place) => this.#object(schema, place),
    array: (schema, place) => this.#array(schema, place),
    string: (schema, place) => stringOf(schema, place),
    integer: (schema, place) => numberOf(schema, place, true),
    number: (schema, place) => numberOf(schema, place, false),
    boolean: () => choice([literal("true"), literal("false")]),
    null: () => literal("null"),
  };

  #object(schema: Schema, place: string): Rule {
    const { properties, required = [], additionalProperties: more, propertyNames } = schema;
    if (properties === undefined && more === undefined && propertyNames === undefined && isEmptyList(required))
      return anyObject;
    if (properties !== undefined && !isObject(properties))
      throw wrong(`${place}.properties`, properties, "an object of schemas");
    if (!Array.isArray(required)) throw wrong(`${place}.required`, required, "a list of names");
    const own = Object.entries(properties ?? {});
    const undeclared = required.filter((name) => !own.some(([key]) => key === name));
    // A required name without a schema may have any value.
    const all = [
      ...own,
      ...undeclared.map((name): [string, unknown] => [String(name), more === false ? true : (more ?? true)]),
    ];
    const long = all.find(([name]) => name.length > MOST_NAME);
    if (long !== undefined)
      throw unsupported(
        `${place}.properties`,
        `it has a name of ${long[0].length} characters, and ${MOST_NAME} are possible.`,
      );
    const members = all.map(([name, value]) => ({
      key: literal(JSON.stringify(name)),
      value: this.rule(value, `${place}.properties.${name}`),
      isRequired: required.includes(name),
    }));
    const isClosed = more === false || (more === undefined && properties !== undefined);
    if (isClosed) return objectRule(members, null);
    const key =
      propertyNames === undefined || all.length > 0
        ? otherKey(all.map(([name]) => name))
        : this.#key(propertyNames, `${place}.propertyNames`);
    if (propertyNames !== undefined && all.length > 0 && !isPlainString(propertyNames))
      throw unsupported(`${place}.propertyNames`, "beside `properties` it cannot be used.");
    return objectRule(members, { key, value: this.rule(more ?? true, `${place}.additionalProperties`) });
  }

  #key(schema: unknown, place: string): Rule {
    if (isPlainString(schema)) return otherKey([]);
    const isKey = isObject(schema) && (schema.type === "string" || isListOfTexts(schema.enum));
    if (!isKey) throw wrong(place, schema, 'a schema of strings, with `"type": "string"`');
    return this.rule(schema, place);
  }

  #array(schema: Schema, place: string): Rule {
    const { items, prefixItems = [] } = schema;
    const [least, most] = countsOf(schema, ["minItems", "maxItems"], place);
    if (!Array.isArray(prefixItems)) throw wrong(`${place}.prefixItems`, prefixItems, "a list of schemas");
    if (Array.isArray(items)) throw unsupported(`${place}.items`, "it is a list; use `prefixItems` for it.");
    if (items === undefined && prefixItems.length === 0 && least === 0 && most === NO_LIMIT) return anyArray;
    const first = prefixItems.map((item, i) => this.rule(item, `${place}.prefixItems[${i}]`));
    const isFixed = items === false || (items === undefined && first.length > 0);
    if (isFixed && least > first.length)
      throw wrong(`${place}.minItems`, least, `at most ${first.length}, the number of \`prefixItems\``);
    return arrayRule(first, isFixed ? null : this.rule(items ?? true, `${place}.items`), least, most);
  }
}

function readTypes(given: unknown, place: string): readonly Type[] {
  const list = Array.isArray(given) ? given : [given];
  const isType = (type: unknown): type is Type => types.some((it) => it === type);
  if (list.length > 0 && list.every(isType)) return list;
  throw wrong(place, given, `one of ${types.join(", ")}, or a list of them`);
}

/** A part of a JSON pointer. */
function pointerKey(part: string): string {
  const text = /%(?![0-9a-f]{2})/i.test(part) ? part : decodeURI(part);
  return text.replaceAll("~1", "/").replaceAll("~0", "~");
}

/** A schema without `type` is one of those whose keywords it has. */
function impliedTypes(schema: Schema): readonly Type[] {
  const implied = types.filter(
    (type) => type !== "integer" && keywordsOf[type].some((key) => schema[key] !== undefined),
  );
  return implied;
}

function isOfType(value: unknown, type: Type): boolean {
  if (value === null) return type === "null";
  if (Array.isArray(value)) return type === "array";
  if (type === "integer") return Number.isInteger(value);
  return typeof value === type;
}

const isObject = (value: unknown): value is Schema =>
  typeof value === "object" && value !== null && !Array.isArray(value);
const isEmptyList = (value: unknown): boolean => Array.isArray(value) && value.length === 0;
const isListOfTexts = (value: unknown): boolean =>
  Array.isArray(value) && value.every((item) => typeof item === "string");
const isPlainString = (schema: unknown): boolean =>
  isObject(schema) &&
  schema.type === "string" &&
  Object.keys(schema).every((key) => key === "type" || annotations.has(key));

const supportedWords = (): string => [...known].filter((key) => !annotations.has(key)).join(", ");
