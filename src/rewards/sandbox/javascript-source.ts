/**
 * The JavaScript that runs in QuickJS before the program: the little of Node that programs for a judge use.
 *
 * `console`, `process`, `require` of assert, fs (to read the input), readline and util, and timers that do not wait. It
 * evaluates to functions that only the host has. If a program changes any of this, it only harms itself.
 */

/** An expression: a function of the host's functions and the input. */
export const PRELUDE = String.raw`(function (print, exit, input) {
  "use strict";
  const show = (value, seen = []) => {
    if (typeof value === "string") return seen.length === 0 ? value : "'" + value.replaceAll("'", "\\'") + "'";
    if (typeof value === "bigint") return value + "n";
    if (typeof value === "symbol" || value === null || typeof value !== "object" && typeof value !== "function")
      return Object.is(value, -0) ? "-0" : String(value);
    if (typeof value === "function") return (value.name ? "[Function: " + value.name + "]" : "[Function (anonymous)]");
    if (value instanceof Error) return value.stack ? value + "\n" + value.stack : String(value);
    if (value instanceof Date) return value.toISOString();
    if (value instanceof RegExp) return String(value);
    if (seen.includes(value)) return "[Circular *1]";
    const inner = (it) => show(it, [...seen, value]);
    const wrap = (open, parts, close) => {
      if (parts.length === 0) return open + close;
      const line = parts.join(", ");
      const space = open.endsWith("{") || open.endsWith("[") ? " " : "";
      return line.length <= 72 && !line.includes("\n")
        ? open + space + line + space + close
        : open + "\n  " + parts.map((part) => part.replaceAll("\n", "\n  ")).join(",\n  ") + "\n" + close;
    };
    if (Array.isArray(value)) return wrap("[", Array.from(value, inner), "]");
    if (ArrayBuffer.isView(value))
      return wrap(value.constructor.name + "(" + value.length + ") [", Array.from(value, inner), "]");
    if (value instanceof Map)
      return wrap("Map(" + value.size + ") {", [...value].map(([k, v]) => inner(k) + " => " + inner(v)), "}");
    if (value instanceof Set) return wrap("Set(" + value.size + ") {", [...value].map(inner), "}");
    const name = value.constructor?.name;
    const key = (it) => (/^[A-Za-z_$][\w$]*$/.test(it) ? it : "'" + it + "'");
    const named = name === "Object" ? "" : (name ?? "") + " ";
    const prefix = Object.getPrototypeOf(value) === null ? "[Object: null prototype] " : named;
    return wrap(prefix + "{", Object.keys(value).map((it) => key(it) + ": " + inner(value[it])), "}");
  };
  const format = (...values) => {
    let rest = values;
    let text = "";
    if (typeof values[0] === "string" && values.length > 1) {
      rest = values.slice(1);
      text = values[0].replace(/%([sdifjoO%])/g, (match, kind) => {
        if (kind === "%") return "%";
        if (rest.length === 0) return match;
        const value = rest.shift();
        if (kind === "d") return String(Number(value));
        if (kind === "i") return String(Number.parseInt(value));
        if (kind === "f") return String(Number.parseFloat(value));
        if (kind === "j") return JSON.stringify(value);
        return kind === "s" && typeof value !== "object" ? String(value) : show(value, [0]);
      });
      return [text, ...rest.map((value) => show(value))].join(" ");
    }
    return values.map((value) => (typeof value === "string" ? value : show(value))).join(" ");
  };
  const to = (stream) => (...values) => print(stream, format(...values) + "\n");
  globalThis.console = { log: to(1), info: to(1), debug: to(1), table: to(1), error: to(2), warn: to(2), trace: to(2) };

  const isSame = (a, b, strict) => {
    if (Object.is(a, b) || (!strict && a == b)) return true;
    if (typeof a !== "object" || typeof b !== "object" || a === null || b === null) return false;
    if (strict && Object.getPrototypeOf(a) !== Object.getPrototypeOf(b)) return false;
    if (Array.isArray(a) !== Array.isArray(b)) return false;
    if (a instanceof Date && b instanceof Date) return a.getTime() === b.getTime();
    if (a instanceof RegExp && b instanceof RegExp) return String(a) === String(b);
    if (a instanceof Map && b instanceof Map)
      return a.size === b.size && [...a].every(([k, v]) => b.has(k) && isSame(v, b.get(k), strict));
    if (a instanceof Set && b instanceof Set)
      return a.size === b.size && [...a].every((it) => b.has(it) || [...b].some((other) => isSame(it, other, strict)));
    const [left, right] = [Object.keys(a), Object.keys(b)];
    return left.length === right.length && left.every((it) => Object.hasOwn(b, it) && isSame(a[it], b[it], strict));
  };
  class AssertionError extends Error {
    name = "AssertionError";
    code = "ERR_ASSERTION";
  }
  const fail = (message, words) => {
    if (message instanceof Error) throw message;
    throw new AssertionError(message ?? words);
  };
  const claim = (isTrue, message, words) => isTrue || fail(message, words);
  const compared = (test, words) => (a, b, message) =>
    claim(test(a, b), message, show(a, [0]) + " " + words + " " + show(b, [0]));
  const matches = (error, expected) => {
    if (expected instanceof RegExp) return expected.test(String(error));
    if (typeof expected === "function")
      return expected === Error || expected.prototype instanceof Error
        ? error instanceof expected
        : expected(error) === true;
    return typeof expected !== "object" || Object.keys(expected).every((it) => isSame(error[it], expected[it], true));
  };
  const throws = (run, expected, message) => {
    let raised = null;
    try { run(); } catch (error) { raised = { error }; }
    const words = message ?? (typeof expected === "string" ? expected : undefined);
    claim(raised !== null, words, "Missing expected exception.");
    if (!matches(raised.error, expected)) throw raised.error;
  };
  const assert = (value, message) => claim(value, message, "The expression evaluated to a falsy value");
  Object.assign(assert, {
    AssertionError,
    ok: assert,
    fail: (message) => fail(message, "Failed"),
    equal: compared((a, b) => a == b || Object.is(a, b), "=="),
    notEqual: compared((a, b) => a != b, "!="),
    strictEqual: compared(Object.is, "==="),
    notStrictEqual: compared((a, b) => !Object.is(a, b), "!=="),
    deepEqual: compared((a, b) => isSame(a, b, false), "deep equals"),
    deepStrictEqual: compared((a, b) => isSame(a, b, true), "deep equals"),
    notDeepEqual: compared((a, b) => !isSame(a, b, false), "does not deep equal"),
    notDeepStrictEqual: compared((a, b) => !isSame(a, b, true), "does not deep equal"),
    match: compared((a, b) => b.test(a), "matches"),
    throws,
    doesNotThrow: (run) => void run(),
    rejects: async (run, expected) => {
      const raised = await (typeof run === "function" ? run() : run).then(() => null, (error) => ({ error }));
      claim(raised !== null, undefined, "Missing expected rejection.");
      if (!matches(raised.error, expected)) throw raised.error;
    },
  });
  assert.strict = Object.assign((value, message) => assert(value, message), assert, {
    equal: assert.strictEqual, notEqual: assert.notStrictEqual,
    deepEqual: assert.deepStrictEqual, notDeepEqual: assert.notDeepStrictEqual,
  });

  const timers = new Map();
  let lastTimer = 0;
  let now = 0;
  const later = (run, ms, every, args) => {
    const delay = Math.max(1, Number(ms) || 1);
    timers.set(++lastTimer, { run: () => run(...args), at: now + delay, every: every ? delay : 0 });
    return lastTimer;
  };
  const forget = (timer) => void timers.delete(timer);
  Object.assign(globalThis, {
    setTimeout: (run, ms, ...args) => later(run, ms, false, args),
    setInterval: (run, ms, ...args) => later(run, ms, true, args),
    setImmediate: (run, ...args) => later(run, 0, false, args),
    clearTimeout: forget, clearInterval: forget, clearImmediate: forget,
    queueMicrotask: (run) => void Promise.resolve().then(run),
  });
  const tick = () => {
    let next = null;
    for (const [id, timer] of timers) if (next === null || timer.at < next.timer.at) next = { id, timer };
    if (next === null) return false;
    now = next.timer.at;
    if (next.timer.every > 0) next.timer.at = now + next.timer.every;
    else timers.delete(next.id);
    next.timer.run();
    return true;
  };

  const events = () => {
    const known = new Map();
    const target = {
      on(name, run) { known.set(name, [...(known.get(name) ?? []), run]); return target; },
      emit(name, ...args) { for (const run of known.get(name) ?? []) run(...args); },
      has: (name) => known.has(name),
    };
    target.once = target.addListener = target.on;
    return target;
  };
  const lines = () => (input === "" ? [] : input.replace(/\r?\n$/, "").split(/\r?\n/));
  const stdin = Object.assign(events(), {
    fd: 0, isTTY: false,
    setEncoding() { return stdin; }, resume() { return stdin; }, pause() { return stdin; }, unref() { return stdin; },
    read: () => { const text = input; input = ""; return text === "" ? null : text; },
    async *[Symbol.asyncIterator]() { if (input !== "") yield input; },
  });
  setImmediate(() => {
    if (stdin.has("data") && input !== "") stdin.emit("data", input);
    if (stdin.has("readable")) stdin.emit("readable");
    stdin.emit("end");
    stdin.emit("close");
  });
  const createInterface = () => {
    const face = Object.assign(events(), {
      close() { if (!face.isClosed) { face.isClosed = true; face.emit("close"); } },
      question(words, ...rest) { print(1, String(words)); rest.at(-1)(unread.shift() ?? ""); },
      setPrompt() {}, prompt() {}, pause() { return face; }, resume() { return face; },
      async *[Symbol.asyncIterator]() { while (unread.length > 0) yield unread.shift(); },
    });
    const unread = lines();
    setImmediate(() => {
      if (face.has("line")) while (unread.length > 0 && !face.isClosed) face.emit("line", unread.shift());
      if (face.has("line")) face.close();
    });
    return face;
  };
  const read = (file, options) => {
    if (file !== 0 && file !== "/dev/stdin") {
      const error = new Error("EACCES: permission denied, open '" + file + "'");
      error.code = "EACCES";
      throw error;
    }
    const encoding = typeof options === "string" ? options : options?.encoding;
    return encoding ? input : Object.assign(new String(input), { toString: () => input });
  };
  const stream = (at) => ({ write: (text) => { print(at, String(text)); return true; }, isTTY: false });
  const modules = {
    assert,
    "assert/strict": assert.strict,
    fs: { readFileSync: read },
    readline: { createInterface },
    util: { format, inspect: (value) => show(value, [0]), isDeepStrictEqual: (a, b) => isSame(a, b, true) },
    os: { EOL: "\n" },
    events: {},
    perf_hooks: { performance: { now: () => Date.now() } },
  };
  globalThis.process = {
    argv: ["node", "program"], env: {}, platform: "sandbox", stdin, stdout: stream(1), stderr: stream(2),
    exit(code = globalThis.process.exitCode ?? 0) { exit(code); for (;;); },
    nextTick: (run, ...args) => queueMicrotask(() => run(...args)),
    hrtime: Object.assign(() => [Math.floor(Date.now() / 1000), 0], { bigint: () => BigInt(Date.now()) * 1000000n }),
    memoryUsage: () => ({ heapUsed: 0 }), on() {}, cwd: () => "/",
  };
  globalThis.performance = { now: () => Date.now() };
  globalThis.global = globalThis;
  globalThis.module = { exports: {} };
  globalThis.exports = globalThis.module.exports;
  globalThis.require = (name) => {
    const key = String(name).replace(/^node:/, "");
    if (Object.hasOwn(modules, key)) return modules[key];
    throw new Error("Cannot find module '" + name + "'");
  };
  globalThis.structuredClone ??= (value) => {
    if (typeof value !== "object" || value === null) return value;
    if (value instanceof Date) return new Date(value);
    if (value instanceof Map) return new Map([...value].map(([k, v]) => [structuredClone(k), structuredClone(v)]));
    if (value instanceof Set) return new Set([...value].map(structuredClone));
    if (Array.isArray(value)) return value.map(structuredClone);
    return Object.fromEntries(Object.entries(value).map(([k, v]) => [k, structuredClone(v)]));
  };
  const call = (target, args) => target(...JSON.parse(args).map((text) => JSON.parse(text)));
  const describe = (error) =>
    error instanceof Error ? String(error) + "\n" + (error.stack ?? "") : "Uncaught " + show(error, [0]);
  return { tick, call, stringify: (value) => JSON.stringify(value) ?? "null", describe };
})`;

/** An expression for a function of the program, or a method of its class `Solution`; null if the name is not an identifier. */
export function functionSource(name: string): string | null {
  if (!/^[\p{ID_Start}$_][\p{ID_Continue}$]*$/u.test(name)) return null;
  return `typeof ${name} === "function" ? ${name} : ((solution) => solution.${name}.bind(solution))(new Solution())`;
}
