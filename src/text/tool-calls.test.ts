import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { type ReplyEvent, ReplyReader } from "./tool-calls.ts";

type Read = { text: string; calls: { name: string; arguments: string }[] };

/** The text and calls of a reply, joined. */
function read(pieces: readonly string[]): Read {
  const reader = new ReplyReader();
  const events: ReplyEvent[] = [...pieces.flatMap((piece) => reader.push(piece)), ...reader.end()];
  const result: Read = { text: "", calls: [] };
  for (const event of events) {
    if (event.kind === "text") result.text += event.text;
    else if (event.kind === "call") {
      expect(event.index).toBe(result.calls.length);
      result.calls.push({ name: event.name, arguments: "" });
    } else result.calls[event.index]!.arguments += event.text;
  }
  return result;
}

const cases: readonly [name: string, reply: string, text: string, calls: readonly [string, string][]][] = [
  ["no call", "Hello  there \n", "Hello  there \n", []],
  ["an empty reply", "", "", []],
  [
    "one call",
    '<tool_call>\n{"name": "add", "arguments": {"a": 3, "b": 4}}\n</tool_call>',
    "",
    [["add", '{"a": 3, "b": 4}']],
  ],
  [
    "text before a call loses the space between them",
    'Let me see.\n<tool_call>{"name":"f","arguments":{}}</tool_call>',
    "Let me see.",
    [["f", "{}"]],
  ],
  [
    "two calls",
    '<tool_call>\n{"name": "f", "arguments": {"a": [1, {"b": "}"}]}}\n</tool_call>\n<tool_call>\n{"name": "g", "arguments": {}}\n</tool_call>\n',
    "",
    [
      ["f", '{"a": [1, {"b": "}"}]}'],
      ["g", "{}"],
    ],
  ],
  ["text after a call", '<tool_call>{"name":"f","arguments":{}}</tool_call>\nDone.', "\nDone.", [["f", "{}"]]],
  ["arguments before the name", '<tool_call>{"arguments": {"a": 1}, "name": "f"}</tool_call>', "", [["f", '{"a": 1}']]],
  ["parameters for arguments", '<tool_call>{"name": "f", "parameters": {"a": 1}}</tool_call>', "", [["f", '{"a": 1}']]],
  ["arguments in a text", '<tool_call>{"name": "f", "arguments": "{\\"a\\": 1}"}</tool_call>', "", [["f", '{"a": 1}']]],
  ["no arguments", '<tool_call>{"name": "f"}</tool_call>', "", [["f", "{}"]]],
  ["null as arguments", '<tool_call>{"name": "f", "arguments": null}</tool_call>', "", [["f", "{}"]]],
  [
    "other keys",
    '<tool_call>{"id": 7, "name": "f", "x": {"name": "g"}, "arguments": {}}</tool_call>',
    "",
    [["f", "{}"]],
  ],
  ["a missing brace", '<tool_call>{"name": "f", "arguments": {"a": 1}\n</tool_call>', "", [["f", '{"a": 1}']]],
  ["a missing tag", '<tool_call>{"name": "f", "arguments": {"a": 1}}', "", [["f", '{"a": 1}']]],
  ["cut within arguments", '<tool_call>{"name": "f", "arguments": {"a": "x', "", [["f", '{"a": "x']]],
  [
    "tags within a text",
    '<tool_call>{"name": "f", "arguments": {"a": "</tool_call>"}}</tool_call>',
    "",
    [["f", '{"a": "</tool_call>"}']],
  ],
  ["no JSON", "<tool_call>f(1)</tool_call> ok", "<tool_call>f(1)</tool_call> ok", []],
  ["no name", 'a <tool_call>{"arguments": {}}</tool_call>', 'a <tool_call>{"arguments": {}}</tool_call>', []],
  [
    "a name that is no text",
    '<tool_call>{"name": 3, "arguments": {}}</tool_call>',
    '<tool_call>{"name": 3, "arguments": {}}</tool_call>',
    [],
  ],
  ["cut within the name", 'a <tool_call>{"name": "f', 'a <tool_call>{"name": "f', []],
  ["a tag that is none", "a <tool_cal> b <", "a <tool_cal> b <", []],
  ["garbage in arguments", '<tool_call>{"name": "f", "arguments": {"a": <b>}}</tool_call>', "", [["f", '{"a": <b>}']]],
  [
    "garbage after a call without arguments",
    '<tool_call>{"name": "f"} x</tool_call>',
    '<tool_call>{"name": "f"} x</tool_call>',
    [],
  ],
];

describe("a reply is read as text and calls", () => {
  for (const [name, reply, text, calls] of cases) {
    test(name, () => {
      expect(read([reply])).toEqual({ text, calls: calls.map(([fn, args]) => ({ name: fn, arguments: args })) });
    });
  }
});

/** The reply split at some positions. */
function cut(reply: string, places: readonly number[]): string[] {
  const ends = [...places.map((place) => place % (reply.length + 1)), reply.length].sort((a, b) => a - b);
  return ends.map((end, i) => reply.slice(ends[i - 1] ?? 0, end));
}

test("the result does not depend on how a reply is split into pieces", () => {
  const fragments = fc.constantFrom(
    ...[
      "<tool_call>",
      "</tool_call>",
      "<tool_",
      '{"name": "f"',
      '"arguments": {',
      '"a": "x',
      '"',
      "}",
      "]",
      ",",
      " ",
      "\n",
      "text",
      "<",
      ":",
      "\\",
      "null",
      "é🙂",
    ],
  );
  const replies = fc.oneof(
    fc.constantFrom(...cases.map(([, reply]) => reply)),
    fc.array(fragments).map((parts) => parts.join("")),
  );
  fc.assert(
    fc.property(replies, fc.array(fc.nat()), (reply, places) => {
      expect(read(cut(reply, places))).toEqual(read([reply]));
      expect(read([...reply])).toEqual(read([reply]));
    }),
    { numRuns: 500 },
  );
});

test("arguments are emitted while they arrive", () => {
  const reader = new ReplyReader();
  expect(reader.push('<tool_call>{"name": "f", "arguments": ')).toEqual([]);
  expect(reader.push('{"city": "Pa')).toEqual([
    { kind: "call", index: 0, name: "f" },
    { kind: "arguments", index: 0, text: '{"city": "Pa' },
  ]);
  expect(reader.push('ris"}')).toEqual([{ kind: "arguments", index: 0, text: 'ris"}' }]);
  expect([...reader.push("}</tool_call>"), ...reader.end()]).toEqual([]);
});
