import { describe, expect, test } from "vitest";
import { flagHelp, parseFlags } from "./flags.ts";

const table = {
  port: { kind: "count", least: 0, most: 65535, fallback: 8000, doc: "port" },
  "max-model-len": { kind: "count", least: 1, doc: "length" },
  "api-key": { kind: "text", value: "KEY", doc: "key" },
  "cache-gb": { kind: "number", doc: "cache" },
  "top-p": { kind: "number", most: 1, doc: "share" },
  "min-p": { kind: "number", least: 0, most: 1, doc: "least share" },
  system: { kind: "text", value: "TEXT", mayBeEmpty: true, doc: "prompt" },
  device: { kind: "choice", of: ["cpu", "webgpu"], doc: "device" },
  "allow-reload": { kind: "switch", doc: "reload" },
} as const;

test("defaults stand for what is not given", () => {
  expect(parseFlags(table, [])).toEqual({
    flags: { port: 8000, device: "cpu", "allow-reload": false },
    words: [],
    isHelp: false,
  });
});

test("a value may follow a space or an equals sign, and an underscore is a dash", () => {
  const spaced = parseFlags(table, ["m", "--port", "0", "--api-key", "k", "--cache-gb", "0.5", "--allow-reload"]);
  const joined = parseFlags(table, ["--port=0", "--api_key=k", "--cache-gb=0.5", "m", "--allow_reload"]);
  expect(spaced).toEqual(joined);
  expect(spaced.flags).toMatchObject({ port: 0, "api-key": "k", "cache-gb": 0.5, "allow-reload": true });
  expect(spaced.words).toEqual(["m"]);
});

test("only a text that may be empty can be given without a character", () => {
  expect(parseFlags(table, ["--system", ""]).flags.system).toBe("");
  expect(() => parseFlags(table, ["--api-key", ""])).toThrow(/`--api-key` has no value/);
});

describe("a mistake is named with its value", () => {
  const cases: readonly [readonly string[], RegExp][] = [
    [["--prot", "1"], /`--prot` is no option\. Did you mean --port\?/],
    [["-p", "1"], /`-p` is no option/],
    [["--port"], /`--port` has no value\. Write --port N\./],
    [["--api-key", "--port"], /`--api-key` has no value\. Write --api-key KEY\./],
    [["--port", "x"], /`--port` is "x"; it should be a whole number from 0 to 65535\./],
    [["--max-model-len", "0"], /"0"; it should be a whole number of at least 1\./],
    [["--cache-gb", "-1"], /"-1"; it should be a number above 0\./],
    [["--top-p", "0"], /"0"; it should be a number above 0 and at most 1\./],
    [["--min-p", "1.5"], /"1\.5"; it should be a number from 0 to 1\./],
    [["--port", "70000"], /"70000"; it should be a whole number from 0 to 65535\./],
    [["--port=-1"], /"-1"; it should be a whole number from 0 to 65535\./],
    [["--device", "gpu"], /`--device` is "gpu"; it should be one of cpu, webgpu\./],
    [["--allow-reload=1"], /`--allow-reload` takes no value/],
  ];
  for (const [args, message] of cases)
    test(args.join(" "), () => expect(() => parseFlags(table, args)).toThrow(message));
});

test("help names every option with its default", () => {
  const help = flagHelp(table);
  for (const name of Object.keys(table)) expect(help).toContain(`--${name}`);
  expect(help).toMatch(/--port N +port \(8000\)/);
  expect(help).toMatch(/--device cpu\|webgpu +device \(cpu\)/);
});
