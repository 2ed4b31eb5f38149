/**
 * Grammars over tokens: the tokens that may follow are exactly those whose bytes may, and a random walk along them ends
 * in a text that is valid. Schemas are checked against zod's own reading of them.
 */
import { join } from "node:path";
import * as fc from "fast-check";
import { describe, expect, test } from "vitest";
import * as z from "zod";
import { Random } from "../../util/random.ts";
import { loadTokenizer, type Tokenizer } from "../tokenizer.ts";
import { callsRule, ReplyReader } from "../tool-calls.ts";
import { Automaton, type State } from "./automaton.ts";
import { formats } from "./formats.ts";
import { type GrammarState, grammarOf, hasToken } from "./grammar.ts";
import { schemaRule } from "./json-schema.ts";
import { regexRule } from "./regex.ts";
import type { Rule } from "./rule.ts";
import { tokenTable } from "./token-table.ts";

const fixtures = join(import.meta.dirname, "../../../test/fixtures/text");
const qwen = await loadTokenizer(join(fixtures, "qwen2"));
const table = tokenTable(qwen, qwen.vocabSize);

/** Whether a text matches a rule as a whole. */
function matches(rule: Rule, text: string): boolean {
  const automaton = new Automaton(rule);
  let state: State | null = automaton.start();
  for (const byte of new TextEncoder().encode(text)) state = state && automaton.after(state, byte);
  return state?.isComplete ?? false;
}

/** The text of a random walk; it ends as soon as it may, after at most `most` tokens. */
function walk(start: GrammarState, random: Random, tokenizer: Tokenizer, most: number): string | null {
  const ids: number[] = [];
  let state = start;
  while (ids.length < most) {
    const allowed = state.allowed();
    if (allowed.count === 0 || (state.isComplete && random.uniform() < 0.5)) return tokenizer.decode(ids);
    const at = random.int(allowed.count);
    let id = 0;
    for (let seen = 0; ; id++) if (hasToken(allowed, id) && seen++ === at) break;
    ids.push(id);
    state = state.after(id);
  }
  return null;
}

describe("a schema allows these texts, and not those", () => {
  const point = { type: "object", properties: { x: { type: "integer" }, y: { type: "integer" } } };
  test.each<[schema: unknown, good: readonly string[], bad: readonly string[]]>([
    [
      { ...point, required: ["x", "y"] },
      ['{"x": 1, "y": -2}', '{\n  "x": 1,\n  "y":2\n}'],
      ['{"x": 1}', '{"y": 1, "x": 2}', "{}", '{"x":1,"y":2,"z":3}'],
    ],
    [{ ...point, required: ["y"] }, ['{"y":1}', '{"x": 0, "y": 1}'], ['{"x":1}', "{}"]],
    [point, ["{}", "{ }", '{"x":1}', '{"y":1}', '{"x":1,"y":2}'], ['{"x":1,}', '{,"y":1}']],
    [
      { ...point, additionalProperties: { type: "null" } },
      ['{"z":null}', '{"x":1,"xx":null}'],
      ['{"x":null}', '{"z":1}', '{"\\u0078":null}'],
    ],
    [{ type: "object", properties: {} }, ["{}"], ['{"a":1}']],
    [{ type: "object" }, ["{}", '{"a":[{"b":[]}, "c", -1.5e-7, true, null]}'], ["[]", '{"a":01}', '{"a":.5}']],
    [
      { type: "object", propertyNames: { enum: ["a", "b"] }, additionalProperties: { type: "boolean" } },
      ['{"a":true,"b":false}'],
      ['{"c":true}'],
    ],
    [{ required: ["z"], properties: { a: { type: "null" } } }, ['{"z":[1]}', '{"a":null,"z":1}'], ["{}"]],
    [
      { type: "array", items: { type: "boolean" }, minItems: 1, maxItems: 2 },
      ["[true]", "[true, false]"],
      ["[]", "[true,true,true]"],
    ],
    [
      { type: "array", prefixItems: [{ type: "null" }, { type: "integer" }], minItems: 1 },
      ["[null]", "[null,1]"],
      ["[]", "[1]", "[null,1,1]"],
    ],
    [
      { type: "array", prefixItems: [{ type: "null" }], items: { type: "integer" } },
      ["[]", "[null]", "[null,1,2]"],
      ["[1]"],
    ],
    [
      { type: "string", minLength: 2, maxLength: 3 },
      ['"ab"', '"a\\n\\""', '"äöü"'],
      ['"a"', '"abcd"', '"a\nb"', "'ab'"],
    ],
    [{ type: "string", pattern: "^a.c$" }, ['"abc"', '"a\\"c"', '"a\\\\c"'], ['"ac"', '"abcd"']],
    [{ type: "string", pattern: "b" }, ['"b"', '"abc"'], ['"a"']],
    [{ enum: ["a", 'q"', 1, null, { k: [1] }] }, ['"a"', '"q\\""', "1", "null", '{"k":[1]}'], ['"b"', "11"]],
    [
      { enum: ["a", "ab", "abc", "b", "😀", "😁"] },
      ['"a"', '"ab"', '"abc"', '"b"', '"😀"', '"😁"'],
      ['"abcd"', '"😂"', '""'],
    ],
    [{ enum: ["a", 1], type: "integer" }, ["1"], ['"a"']],
    [{ const: -0.5 }, ["-0.5"], ["0.5"]],
    [{ type: ["integer", "null"] }, ["7", "null"], ["7.5", "true"]],
    [{ anyOf: [{ type: "null" }, { const: "x" }] }, ["null", '"x"'], ['"y"']],
    [{ oneOf: [{ type: "null" }] }, ["null"], ["1"]],
    [{ allOf: [{ type: "null" }] }, ["null"], ["1"]],
    [
      { type: "integer", minimum: -15, maximum: 207 },
      ["-15", "-9", "0", "7", "99", "207"],
      ["-16", "208", "300", "1000", "07", "-20"],
    ],
    [{ type: "integer", exclusiveMinimum: 0, maximum: 10 }, ["1", "10"], ["0", "11", "-1"]],
    [{ type: "integer", minimum: 995, maximum: 1002 }, ["995", "999", "1000", "1002"], ["994", "1003", "9999"]],
    [{ type: "integer", maximum: -3 }, ["-3", "-12345"], ["-2", "0", "3"]],
    [{ type: "number", minimum: 0, maximum: 1 }, ["0", "1", "0.25", "0.0"], ["1.5", "-0.5", "2", "1.0e1"]],
    [{ type: "number", exclusiveMinimum: 0, exclusiveMaximum: 2 }, ["1", "0.5", "1.999"], ["0", "2", "0.0", "2.1"]],
    [{ type: "number", minimum: -2, maximum: -1 }, ["-1", "-2", "-1.5"], ["-0.5", "-2.5", "1"]],
    [
      {
        $ref: "#/$defs/n",
        $defs: { n: { anyOf: [{ type: "null" }, { type: "array", items: { $ref: "#/$defs/n" }, maxItems: 1 }] } },
      },
      ["null", "[[[null]]]"],
      ["[[1]]", "[null,null]"],
    ],
    [true, ["1", "{}", '"x"'], ["x"]],
    [{ title: "A", description: "b", default: 1, "x-note": 1 }, ["[1, {}]"], ["nul"]],
    [{ type: "string", format: "uuid" }, ['"550e8400-e29b-41d4-a716-446655440000"'], ['"550e8400"']],
    [{ type: "string", format: "email", pattern: "^(?!a)" }, ['"me@example.com"'], ['"me"']],
  ])("%j", (schema, good, bad) => {
    const rule = schemaRule(schema, "schema");
    for (const text of good) expect([text, matches(rule, text)]).toEqual([text, true]);
    for (const text of bad) expect([text, matches(rule, text)]).toEqual([text, false]);
  });
});

/** Schemas whose values all have an end that a walk reaches soon. */
const schemas = fc.letrec<{ schema: object; leaf: object }>((tie) => ({
  leaf: fc.oneof(
    fc.record({ type: fc.constant("string"), maxLength: fc.nat(6) }),
    fc.record({
      type: fc.constant("string"),
      pattern: fc.constantFrom("^[a-c]{1,3}$", "^(x|yz)?\\d{2}$", '^["\\\\\\n]$'),
    }),
    fc
      .tuple(fc.integer(), fc.nat(5000))
      .map(([minimum, more]) => ({ type: "integer", minimum, maximum: minimum + more })),
    fc
      .tuple(fc.integer({ min: -50, max: 50 }), fc.integer({ min: 1, max: 90 }))
      .map(([minimum, more]) => ({ type: "number", minimum, maximum: minimum + more })),
    fc
      .uniqueArray(fc.oneof(fc.string(), fc.integer(), fc.boolean()), { minLength: 1, maxLength: 4 })
      .map((values) => ({ enum: values })),
    fc.constantFrom({ type: "boolean" }, { type: "null" }, { type: "integer" }, { type: "number" }),
  ),
  schema: fc.oneof(
    { maxDepth: 3 },
    tie("leaf"),
    fc
      .tuple(tie("schema"), fc.nat(2), fc.nat(2))
      .map(([items, minItems, more]) => ({ type: "array", items, minItems, maxItems: minItems + more })),
    fc
      .uniqueArray(fc.tuple(fc.string(), tie("schema"), fc.boolean()), { maxLength: 4, selector: ([name]) => name })
      .map((members) => ({
        type: "object",
        properties: Object.fromEntries(members.map(([name, value]) => [name, value])),
        required: members.filter(([, , isRequired]) => isRequired).map(([name]) => name),
        additionalProperties: false,
      })),
    fc.array(tie("schema"), { minLength: 1, maxLength: 3 }).map((anyOf) => ({ anyOf })),
  ),
})).schema;

test("what a random walk writes is valid by the schema, for zod", () => {
  const hasProto = (schema: object) => JSON.stringify(schema).includes("__proto__");
  fc.assert(
    fc.property(schemas, fc.integer(), (schema, seed) => {
      fc.pre(!hasProto(schema)); // zod and JSON.parse treat this name differently
      const grammar = grammarOf(schemaRule(schema, "schema"), table);
      const text = walk(grammar, new Random(seed, "walk"), qwen, 3000);
      expect(text).not.toBeNull();
      const value: unknown = JSON.parse(text!);
      const { success, error } = z.fromJSONSchema(schema as z.core.JSONSchema.JSONSchema).safeParse(value);
      expect([success, text, error?.issues]).toEqual([true, text, undefined]);
    }),
    { numRuns: 150 },
  );
}, 60_000);

test.each(formats)("a %s of a random walk is one for zod", (format) => {
  const schema = { type: "string", format } as const;
  const grammar = grammarOf(schemaRule(schema, "schema"), table);
  for (let seed = 0; seed < 30; seed++) {
    const text = walk(grammar, new Random(seed, "walk"), qwen, 1000)!;
    const result = z.fromJSONSchema(schema).safeParse(JSON.parse(text));
    expect([text, result.success]).toEqual([text, true]);
  }
});

describe("a pattern", () => {
  test.each([
    "^a*b+c?$",
    "^(a|bc)*$",
    "^[^a-y]{2,3}$",
    "^\\d+(\\.\\d{1,2})?$",
    "^(?:x|(?<n>y))$",
    "^[\\w-]+$",
    "^\\u0041\\x42\\/$",
    "^a|b$",
    "^$",
    "x",
    "^\\s\\S$",
    "^.{1,2}$",
    "^[\\]\\-a]+$",
    "^a{0}b$",
    "^(a?){3}$",
    '^"$',
    "^[\\b]$",
    "^(^)?a$",
  ])("%s has the strings of the regular expression", (pattern) => {
    const isBad = pattern.includes("(^)");
    if (isBad) return expect(() => regexRule(pattern)).toThrow("only possible at the beginning or the end");
    const rule = regexRule(pattern);
    const random = new Random(1, pattern);
    const alphabet = [
      "a",
      "b",
      "c",
      "x",
      "y",
      "z",
      "1",
      "2",
      ".",
      " ",
      "-",
      "]",
      "/",
      "A",
      "B",
      '"',
      "\\",
      "\n",
      "é",
      "😀",
      "\b",
    ];
    for (let i = 0; i < 400; i++) {
      const text = Array.from({ length: random.int(5) }, () => alphabet[random.int(alphabet.length)]).join("");
      const written = JSON.stringify(text).slice(1, -1);
      expect([text, matches(rule, written)]).toEqual([text, new RegExp(pattern, "u").test(text)]);
    }
  });

  test.each(["(?=a)", "(?!a)", "(?<=a)b", "\\bword", "(a)\\1", "\\p{L}", "a$b", "[", "("])(
    "%s is refused",
    (pattern) => {
      expect(() => regexRule(pattern)).toThrow();
    },
  );

  test("that is too long or nested too deep is refused", () => {
    expect(() => regexRule("a".repeat(3000))).toThrow("it has 3000 characters");
    expect(() => regexRule("(".repeat(200) + ")".repeat(200))).toThrow("nested more than 100 deep");
  });
});

describe("the tokens that may follow", () => {
  test.each(["qwen2", "gpt2", "llama2", "llama3", "gemma", "unigram-bytes"])(
    "are those whose bytes may, with the tokenizer of %s",
    async (name) => {
      const tokenizer = await loadTokenizer(join(fixtures, name));
      const tokens = tokenTable(tokenizer, tokenizer.vocabSize + 7);
      const schema = {
        type: "object",
        properties: { é: { type: "string" }, n: { type: "number" } },
        required: ["é", "n"],
      };
      const rule = schemaRule(schema, "schema");
      const automaton = new Automaton(rule);
      for (let seed = 0; seed < 4; seed++) {
        const random = new Random(seed, "walk");
        let [state, grammar]: [State, GrammarState] = [automaton.start()!, grammarOf(rule, tokens)];
        const ids: number[] = [];
        const isInCharacter = () =>
          Buffer.concat(ids.map((id) => tokens.bytesOf[id]!))
            .toString()
            .endsWith("\ufffd");
        while ((ids.length < 25 || isInCharacter()) && grammar.allowed().count > 0) {
          const follow = (id: number) => {
            let next: State | null = state;
            for (const byte of tokens.bytesOf[id]!) next = next && automaton.after(next, byte);
            return next;
          };
          const allowed = grammar.allowed();
          const expected = tokens.bytesOf.flatMap((bytes, id) => (bytes !== null && follow(id) !== null ? [id] : []));
          expect(tokens.bytesOf.flatMap((_, id) => (hasToken(allowed, id) ? [id] : []))).toEqual(expected);
          expect(allowed.count).toBe(expected.length);
          const id = expected[random.int(expected.length)]!;
          ids.push(id);
          state = follow(id)!;
          grammar = grammar.after(id);
        }
        const bytes = Buffer.concat(ids.map((id) => tokens.bytesOf[id]!));
        expect(tokenizer.decode(ids)).toBe(new TextDecoder("utf-8", { ignoreBOM: true }).decode(bytes));
      }
    },
  );

  test("never hold a special token", () => {
    const { count, bits } = grammarOf(schemaRule({ type: "string" }, "schema"), table)
      .after(qwen.encode('"')[0]!)
      .allowed();
    expect(count).toBeGreaterThan(300);
    for (let id = 0; id < qwen.vocabSize; id++)
      if (qwen.isSpecial(id)) expect(hasToken({ bits, count }, id)).toBe(false);
  });
});

test("replies that are calls are read as these calls", () => {
  const schema = {
    type: "object",
    properties: { a: { type: "integer" } },
    required: ["a"],
    additionalProperties: false,
  };
  const tools = ["add", "take-away"].map((name) => ({ name, arguments: schemaRule(schema, "schema") }));
  for (const most of [1, 3]) {
    const grammar = grammarOf(callsRule(tools, most), table);
    for (let seed = 0; seed < 20; seed++) {
      const reader = new ReplyReader();
      const text = walk(grammar, new Random(seed, "walk"), qwen, 500)!;
      const events = [...reader.push(text), ...reader.end()];
      expect(events.some(({ kind }) => kind === "text")).toBe(false);
      const calls = events.filter(({ kind }) => kind === "call");
      expect(calls.length).toBeGreaterThanOrEqual(1);
      expect(calls.length).toBeLessThanOrEqual(most);
      for (const { index } of calls.map((call) => (call.kind === "call" ? call : expect.fail("calls only")))) {
        const written = events
          .map((event) => (event.kind === "arguments" && event.index === index ? event.text : ""))
          .join("");
        expect(JSON.parse(written)).toEqual({ a: expect.any(Number) });
      }
    }
  }
});

test("states are values: what one sample draws does not change another", () => {
  const grammar = grammarOf(schemaRule({ enum: ["aa", "ab", "b"] }, "schema"), table);
  const [quote, a, b] = ['"', "a", "b"].map((text) => qwen.encode(text)[0]!) as [number, number, number];
  const first = grammar.after(quote);
  expect(first.after(b).after(quote).isComplete).toBe(true);
  expect(hasToken(first.after(a).allowed(), b)).toBe(true);
  expect(hasToken(first.allowed(), a)).toBe(true);
});
