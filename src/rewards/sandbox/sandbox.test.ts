/**
 * The laws of the sandbox: what a program may do, that its limits hold, that it cannot get out, and that no program can
 * tell whether another ran before it. One thread, so that all programs of a language share one process.
 */
import { type ChildProcess, execFileSync, spawn } from "node:child_process";
import { createServer } from "node:net";
import { join } from "node:path";
import type { Readable } from "node:stream";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { confine } from "./confinement.ts";
import { readReply } from "./protocol.ts";
import { type Outcome, openSandbox, type Program, type Sandbox } from "./sandbox.ts";

let sandbox: Sandbox;
beforeAll(async () => {
  sandbox = await openSandbox({ threads: 1, memoryMb: 256, outputBytes: 100_000 });
});
afterAll(() => sandbox.close());

type Rest = Partial<Omit<Program, "language" | "code">>;
const python = (code: string, rest: Rest = {}) => sandbox.run({ language: "python", code, timeoutMs: 20_000, ...rest });
const javascript = (code: string, rest: Rest = {}) =>
  sandbox.run({ language: "javascript", code, timeoutMs: 20_000, ...rest });

describe("a Python program", () => {
  const programs: Record<string, [code: string, stdout: string, rest?: Rest]> = {
    "reads lines": ["a, b = map(int, input().split())\nprint(a + b)", "7\n", { stdin: "3 4\n" }],
    "reads all": ["import sys\nprint(len(sys.stdin.read().split()))", "3\n", { stdin: "1 2\n3" }],
    "reads descriptor 0": ["import os\nprint(open(0).read() + '!', os.read(0, 9))", "é! b''\n", { stdin: "é" }],
    "reads /dev/stdin": ["print(open('/dev/stdin').readline())", "x\n", { stdin: "x" }],
    "is the main module": ["if __name__ == '__main__': print(__name__)", "__main__\n"],
    "prints when it exits": ["import atexit\natexit.register(lambda: print('late'))\nprint('early')", "early\nlate\n"],
    "exits with 0": ["import sys\nprint(1)\nsys.exit(0)\nprint(2)", "1\n"],
    "recurses deeply": [
      "import sys\nsys.setrecursionlimit(10**5)\ndef f(n): return n and 1 + f(n - 1)\nprint(f(50_000))",
      "50000\n",
    ],
    "starts a thread": ["import threading\nt = threading.Thread(target=print, args=(1,))\nt.start()\nt.join()", "1\n"],
    "runs coroutines": [
      "import asyncio\nasync def f(x):\n  await asyncio.sleep(0.001)\n  return x\n" +
        "async def main(): print(await asyncio.gather(f(1), f(2)))\nasyncio.run(main())",
      "[1, 2]\n",
    ],
    "uses the standard library": [
      "import decimal, fractions, sqlite3, csv, difflib\nprint(decimal.Decimal(1) / 8)",
      "0.125\n",
    ],
  };
  for (const [name, [code, stdout, rest]] of Object.entries(programs)) {
    test(name, async () => {
      expect(await python(code, rest)).toMatchObject({ status: "ok", exitCode: 0, stdout });
    });
  }

  test.skipIf(process.platform === "win32")(
    "recurses through C functions, given a stack of a system with ulimit",
    async () => {
      const limit = "import functools, sys\nsys.setrecursionlimit(10**5)\n";
      const code = `${limit}@functools.cache\ndef f(n): return n and 1 + f(n - 1)\nprint(f(5000))`;
      expect((await python(code)).stdout).toBe("5000\n");
    },
  );

  const ends: Record<string, [code: string, outcome: Partial<Outcome>, stderr: RegExp]> = {
    "an exception": ["print(1)\n1 / 0", { status: "error", exitCode: 1, stdout: "1\n" }, /line 2.*ZeroDivisionError/s],
    "a mistake in its syntax": ["def (", { status: "error", exitCode: 1 }, /SyntaxError/],
    "an exit code": ["raise SystemExit(3)", { status: "error", exitCode: 3 }, /^$/],
    "last words": ["import sys\nsys.exit('bye')", { status: "error", exitCode: 1 }, /^bye\n$/],
    "an exception a million calls deep": [
      "import sys\nsys.setrecursionlimit(10**6)\ndef f(): f()\nf()",
      { status: "error" },
      /RecursionError|MemoryError/,
    ],
  };
  for (const [name, [code, outcome, stderr]] of Object.entries(ends)) {
    test(`ends with ${name}`, async () => {
      const found = await python(code, { memoryMb: 128 });
      if (name !== "an exception a million calls deep") expect(found).toMatchObject(outcome);
      else expect(["error", "memory"]).toContain(found.status);
      expect(found.stderr).toMatch(stderr);
    });
  }

  test("answers a call with JSON, whatever it prints", async () => {
    const code = "def f(a, b):\n  print('noise')\n  return (a, b, 10**20)";
    const call = { name: "f", args: ['"é😀\\n"', "[1.5, null]"] };
    const found = await python(code, { call });
    expect(JSON.parse(found.result ?? "").slice(0, 2)).toEqual(["é😀\n", [1.5, null]]);
    expect(found.result).toContain("100000000000000000000");
    const method = "class Solution:\n  def f(self, d): return sorted(d)";
    expect((await python(method, { call: { name: "f", args: ['{"2": 0, "1": 0}'] } })).result).toBe("[1, 2]");
  });
});

describe("a JavaScript program", () => {
  const programs: Record<string, [code: string, stdout: string, rest?: Rest]> = {
    "prints as Node does": [
      "console.log('a', ['b', 1n, -0, null, undefined], { c: [] }, new Map([[1, 2]]), new Set([3]), '%d', 5);" +
        "console.log('%s=%d', 'x', 4)",
      "a [ 'b', 1n, -0, null, undefined ] { c: [] } Map(1) { 1 => 2 } Set(1) { 3 } %d 5\nx=4\n",
    ],
    "reads all": [
      "console.log(require('fs').readFileSync(0, 'utf8').trim().split(' ').length)",
      "2\n",
      { stdin: "a b\n" },
    ],
    "reads lines": [
      "require('node:readline').createInterface({ input: process.stdin }).on('line', (line) => console.log(line + '!'))",
      "a!\nb!\n",
      { stdin: "a\nb\n" },
    ],
    "reads events": [
      "let text = ''; process.stdin.on('data', (it) => { text += it; }).on('end', () => console.log(text))",
      "x\n",
      { stdin: "x" },
    ],
    "waits for promises and timers": [
      "setTimeout(() => console.log(2), 1000); Promise.resolve().then(() => console.log(1))",
      "1\n2\n",
    ],
    "exits with 0": ["console.log(1); process.exit(0); console.log(2)", "1\n"],
  };
  for (const [name, [code, stdout, rest]] of Object.entries(programs)) {
    test(name, async () => {
      expect(await javascript(code, rest)).toMatchObject({ status: "ok", exitCode: 0, stdout });
    });
  }

  test("answers a call, also of a function that is async or a constant", async () => {
    const call = { name: "f", args: ["[1]", "2"] };
    for (const code of [
      "const f = (a, b) => ({ s: a[0] + b })",
      "async function f(a, b) { return { s: a[0] + b }; }",
      "class Solution { f(a, b) { return { s: a[0] + b }; } }",
      "export function f(a, b) { return { s: a[0] + b }; }",
    ])
      expect((await javascript(code, { call })).result).toBe('{"s":3}');
    expect(await javascript("", { call: { name: "f; 1", args: [] } })).toMatchObject({ status: "error", result: null });
  });

  test("may be written in TypeScript", async () => {
    const code = "enum Kind { A = 1 }\nexport function f(x: number): number { return x + Kind.A; }";
    const check = "declare const require: any; require('assert').strictEqual(f(1), 2);";
    expect(await sandbox.run({ language: "typescript", code, check, timeoutMs: 20_000 })).toMatchObject({
      isComplete: true,
    });
    expect(await sandbox.run({ language: "typescript", code: "let x: = 1", timeoutMs: 20_000 })).toMatchObject({
      status: "error",
      stderr: expect.stringContaining("SyntaxError"),
    });
  });

  const deepEqual: [code: string, isEqual: boolean][] = [
    ["assert.deepEqual([1, { a: [2] }], [1, { a: [2] }])", true],
    ["assert.deepEqual([1], [2])", false],
    ["assert.deepEqual([1, 2], [1])", false],
    ["assert.deepEqual({ a: 1 }, { b: 1 })", false],
    ["assert.deepEqual('1', 1)", true],
    ["assert.deepStrictEqual('1', 1)", false],
    ["assert.deepEqual(new Set([1, 2]), new Set([2, 1]))", true],
    ["assert.deepEqual(new Map([[1, [2]]]), new Map([[1, [3]]]))", false],
    ["assert.deepEqual(null, [])", false],
    ["assert.deepEqual(NaN, NaN)", true],
    ["assert.throws(() => { throw new TypeError('x'); }, TypeError)", true],
    ["assert.throws(() => 1)", false],
    ["(async () => { await 1; assert(false); })()", false],
    ["new Promise(() => {})", false],
  ];
  for (const [check, isEqual] of deepEqual) {
    test(`${isEqual ? "passes" : "does not pass"} the check ${check}`, async () => {
      const found = await javascript("const assert = require('node:assert');", { check });
      expect(found.isComplete).toBe(isEqual);
    });
  }
});

describe("limits hold", () => {
  const endless: Record<string, () => Promise<Outcome>> = {
    "Python that loops": () => python("while True: pass", { timeoutMs: 300 }),
    "Python that catches everything": () =>
      python("while True:\n  try:\n    while True: pass\n  except BaseException: pass", { timeoutMs: 300 }),
    "Python that sleeps": () => python("import time\ntime.sleep(1000)", { timeoutMs: 300 }),
    "Python inside a C function": () => python("import itertools\nsum(itertools.repeat(0))", { timeoutMs: 300 }),
    "Python in its exit handler": () =>
      python("import atexit\n@atexit.register\ndef f():\n  while True: pass", { timeoutMs: 300 }),
    "JavaScript that loops": () => javascript("for (;;);", { timeoutMs: 300 }),
    "JavaScript that catches everything": () =>
      javascript("for (;;) try { for (;;); } catch {} finally { for (;;); }", { timeoutMs: 300 }),
    "JavaScript in promises": () => javascript("const f = () => Promise.resolve().then(f); f()", { timeoutMs: 300 }),
    "JavaScript in timers": () => javascript("setInterval(() => {}, 1)", { timeoutMs: 300 }),
  };
  for (const [name, run] of Object.entries(endless)) {
    test(`of time, for ${name}`, async () => {
      expect(await run()).toMatchObject({ status: "timeout", isComplete: false });
    });
  }

  const greedy: Record<string, () => Promise<Outcome>> = {
    "Python that takes it at once": () => python("x = [0] * 10**9"),
    "Python that takes it bit by bit": () => python("x = []\nwhile True: x.append(' ' * 10**6)"),
    "JavaScript that takes it bit by bit": () =>
      javascript("const x = []; for (;;) x.push('x'.repeat(1e6) + x.length)", { memoryMb: 64 }),
    "JavaScript that takes it at once": () => javascript("new Uint8Array(1e9)", { memoryMb: 64 }),
  };
  for (const [name, run] of Object.entries(greedy)) {
    test(`of memory, for ${name}`, async () => {
      expect(await run()).toMatchObject({
        status: "memory",
        isComplete: false,
        stderr: expect.stringMatching(/memory/i),
      });
    });
  }

  test("of memory, for 10 GB, more than the interpreter can count", async () => {
    const found = await python("x = bytearray(10 * 2**30)");
    expect(found).toMatchObject({ status: "error", stderr: expect.stringContaining("OverflowError") });
    const caught = "try: x = [0] * 10**9\nexcept MemoryError: print('less, then')";
    expect(await python(caught)).toMatchObject({ status: "ok", stdout: "less, then\n" });
  });

  const floods: Record<string, () => Promise<Outcome>> = {
    "Python that prints": () => python("while True: print('x' * 1000)"),
    "Python that writes 1 GB": () => python("import os\nfor i in range(10**6): os.write(1, b'x' * 1000)"),
    "JavaScript that prints": () => javascript("for (;;) try { console.log('x'.repeat(1000)) } catch {}"),
  };
  for (const [name, run] of Object.entries(floods)) {
    test(`of output, for ${name}`, async () => {
      const found = await run();
      expect(found.status).toBe("output");
      expect(found.stdout).toHaveLength(100_000);
    });
  }

  test("of errors: what a program prints to stderr is cut, and it goes on", async () => {
    const found = await python("import sys\nfor i in range(1000): print('x' * 1000, file=sys.stderr)\nprint('done')");
    expect(found).toMatchObject({ status: "ok", stdout: "done\n" });
    expect(found.stderr.length).toBe(64 * 1024);
  });
});

describe("there is no way out of Python", () => {
  /** Each tries to get hold of something and prints LOOT when it has. */
  const attempts: Record<string, string> = {
    "reading a file of the host": "open('/etc/passwd').read()",
    "reading a file of the project": `open(${JSON.stringify(import.meta.filename)}).read()`,
    "reading a file of the folder": "open('package.json').read()",
    "reading the terminal": "open('/dev/tty').read(1)",
    "reading the host's processes": "open('/proc/1/environ').read()",
    "writing a file": "open('loot', 'w')",
    "writing to the standard library": "open('/lib/python314.zip', 'r+b')",
    "making a folder": "import os\nos.mkdir('/tmp/loot')",
    "removing a file": "import os\nos.remove('/lib/python314.zip')",
    "moving a file": "import os\nos.rename('/lib/python314.zip', '/lib/x')",
    "changing a file's mode": "import os\nos.chmod('/lib', 0)",
    "making a link": "import os\nos.symlink('/lib', '/tmp/x')",
    "changing the folder": "import os\nos.chdir('/lib')",
    "mapping a file": "import mmap\nmmap.mmap(os.open('/lib/python314.zip', 0), 10)",
    "copying a descriptor": "import os\nos.dup(0)",
    "making a pipe": "import os\nos.pipe()",
    "writing to the sandbox's own pipe": "import os\nos.write(3, b'loot')",
    "the environment": "import os\nassert os.environ, 'empty'",
    "a shell": "import os\nassert os.system('echo loot') == 0",
    "a process": "import subprocess\nsubprocess.run(['ls'])",
    "a fork": "import os\nwhile True: os.fork()",
    "a process of multiprocessing": "import multiprocessing\np = multiprocessing.Process(target=print)\np.start()",
    "a socket": "import socket\nsocket.socket()",
    "a connection": "import socket\nsocket.create_connection(('127.0.0.1', 80))",
    "a name's address": "import socket\nsocket.getaddrinfo('localhost', 80)",
    "a page": "import urllib.request\nurllib.request.urlopen('http://127.0.0.1')",
    "a page by Pyodide's own function": "import pyodide.http\npyodide.http.open_url('http://127.0.0.1')",
    "JavaScript's globals": "import js\njs.process",
    "JavaScript's process": "from js import process",
    "JavaScript's fetch": "import js\njs.fetch('http://127.0.0.1')",
    "Pyodide's own module": "import pyodide_js\npyodide_js.FS",
    "code in JavaScript": "from pyodide.code import run_js\nrun_js('process')",
    "a function's constructor, through a converted list":
      "import _pyodide_core\n_pyodide_core.to_js([1]).constructor.constructor('return process')()",
    "a function's constructor, through a proxy":
      "import _pyodide_core\n_pyodide_core.create_proxy(print).constructor.constructor('return process')()",
    "what of JavaScript is left in the memory":
      "import gc\ngc.unfreeze()\nfound = [x for x in gc.get_objects() if type(x).__name__ == 'JsProxy']\nfound[0].constructor",
    "a call of the bridge": "import _pyodide_core\n_pyodide_core.raw_call(1)",
    "a fatal error of the bridge": "import _pyodide_core\n_pyodide_core.trigger_fatal_error()",
    "foreign functions": "import ctypes\nctypes.string_at(0, 100)",
    "foreign functions, past the first refusal":
      "import sys\ndel sys.modules['ctypes'], sys.modules['_ctypes']\nimport ctypes\nctypes.CDLL(None).system(b'ls')",
    "a library":
      "import _imp, importlib.machinery as m\n_imp.create_dynamic(m.ModuleSpec('x', None, origin='/lib/x.so'))",
    "a timer's signal": "import signal\nsignal.setitimer(signal.ITIMER_REAL, 0.001)",
    "a broken interpreter": "import sys\nsys._getframe().f_locals\nimport os\nos.abort()",
  };
  for (const [name, code] of Object.entries(attempts)) {
    test(name, async () => {
      const found = await python(`import os\n${code}\nprint('LOOT')`);
      expect(["error", "forbidden", "crash"]).toContain(found.status);
      expect(found.stdout).toBe("");
      expect(found.isComplete).toBe(false);
      expect((await python("print('alive')")).stdout).toBe("alive\n");
    });
  }

  test("what corrupts the interpreter's memory ends the program, and the next one runs", async () => {
    // Without ctypes, memory is overwritten through a code object with made-up instructions.
    const code = "def f(): pass\nf.__code__ = f.__code__.replace(co_code=bytes([200, 255] * 50), co_stacksize=1)\nf()";
    const found = await python(code);
    expect(["error", "crash", "timeout", "forbidden", "memory"]).toContain(found.status);
    expect((await python("print('alive')")).stdout).toBe("alive\n");
  });
});

describe("there is no way out of JavaScript", () => {
  const attempts: Record<string, string> = {
    "a file": "require('fs').readFileSync('/etc/passwd', 'utf8')",
    "writing a file": "require('fs').writeFileSync('loot', '')",
    "a process": "require('child_process').execSync('ls')",
    "a module": "import('fs').then((fs) => fs.readFileSync('/etc/passwd'))",
    "a request": "fetch('http://127.0.0.1')",
    "the host's process": "this.constructor.constructor('return process.binding(\"fs\").open')()()",
    "the host's function, through ours": "console.log.constructor('return process.mainModule.require')()('fs')",
    "the host, through a prototype": "({}).__proto__.constructor.constructor('return globalThis.process.kill')()(1)",
    "the host, through an error":
      "try { null.x } catch (error) { error.constructor.constructor('return process.dlopen')()() }",
    "the host, through a caller": "(function f() { return f.caller.constructor('return Deno')(); })()",
  };
  for (const [name, code] of Object.entries(attempts)) {
    test(name, async () => {
      const found = await javascript(
        `const loot = ${code.startsWith("try") ? "null" : code};\n${code};\nconsole.log('LOOT')`,
      );
      const isAsync = name === "a module";
      expect(found.status === "error" || isAsync).toBe(true);
      expect(found.stdout).toBe(isAsync ? "LOOT\n" : "");
    });
  }

  test("a changed prototype is the next program's original again", async () => {
    await javascript("Object.prototype.x = 1; Array.prototype.push = null; globalThis.y = 2; JSON.stringify = null");
    const found = await javascript("console.log(({}).x, typeof [].push, typeof y, typeof JSON.stringify)");
    expect(found.stdout).toBe("undefined function undefined function\n");
  });
});

describe("what only looks like success does not count", () => {
  const early: Record<string, string> = {
    "sys.exit": "import sys\nsys.exit(0)",
    "os._exit": "import os\nos._exit(0)",
    quit: "quit()",
    "an exit handler": "import atexit, os\natexit.register(os._exit, 0)\nraise SystemExit",
    "a skipping tracer":
      "import sys\ndef trace(frame, event, arg):\n  frame.f_lineno = frame.f_lineno + 1\n  return trace\nsys.settrace(trace)",
    "a trap for the check's error": "import sys\nsys.excepthook = lambda *a: None",
    "a printed answer":
      'import os, sys, json\nos.write(1, b\'{"status":"ok","isComplete":true}\')\nsys.stdout.flush()\ndef f(): return 0',
  };
  for (const [name, code] of Object.entries(early)) {
    test(`${name} does not complete a check that raises`, async () => {
      expect((await python(code, { check: "assert False\nassert False" })).isComplete).toBe(false);
    });
  }

  test("process.exit does not complete a check", async () => {
    expect(await javascript("process.exit(0)", { check: "1" })).toMatchObject({ status: "ok", isComplete: false });
  });

  test("bytes that are not a reply are refused", () => {
    const reply = { id: "a", isSpent: false, status: "ok", exitCode: 0, isComplete: true, stdout: "", stderr: "" };
    const whole = { ...reply, result: null, runMs: 1 };
    expect(readReply(Buffer.from(JSON.stringify(whole)))).toEqual(whole);
    for (const broken of [reply, { ...whole, status: "passed" }, { ...whole, exitCode: 0.5 }, [], null, "x"])
      expect(readReply(Buffer.from(JSON.stringify(broken)))).toBeNull();
    expect(readReply(Buffer.from("{"))).toBeNull();
  });
});

describe("a program cannot find out what ran before it", () => {
  /** Leaves a trace as well as it can, and then looks for it. */
  const look = [
    "import sys, os, random, builtins, json, warnings, string, gc, time, decimal, re",
    "print(sorted(globals()), len(sys.modules), sys.getrecursionlimit(), sys.path, os.getcwd(), dict(os.environ))",
    "print(json.dumps([1]), builtins.len is len, len([1]), string.ascii_lowercase, sys.argv, random.random())",
    "print(hasattr(builtins, 'loot'), hasattr(json, 'loot'), hasattr(sys, 'loot'), 'loot' in sys.modules)",
    "print(gc.isenabled(), gc.get_threshold(), decimal.getcontext().prec, sys.stdout.encoding, hash('a'), id(object))",
    "print(sys.getswitchinterval(), time.strftime('%Z'), re.compile('x') is re.compile('x'), sys.get_int_max_str_digits())",
    "print(os.listdir('/tmp'), os.listdir('/home'), os.open('/lib/python314.zip', os.O_RDONLY), len(gc.get_objects()))",
    "print(sys.stdin.read(), file=sys.stderr)",
  ].join("\n");
  const traces = [
    "import builtins, json, sys, os, random, string, gc, decimal, types, socket",
    "builtins.loot = json.loot = sys.loot = 1",
    "sys.modules['loot'] = types.ModuleType('loot')",
    "json.dumps = lambda x: 'loot'",
    "string.ascii_lowercase = 'loot'",
    "builtins.len = lambda x: 42",
    "os.environ['LOOT'] = '1'",
    "random.seed(7)",
    "sys.path.append('loot')",
    "sys.argv.append('loot')",
    "sys.setrecursionlimit(5000)",
    "sys.set_int_max_str_digits(0)",
    "gc.disable()",
    "gc.set_threshold(1)",
    "decimal.getcontext().prec = 3",
    "sys.setswitchinterval(1)",
    "a = [open('/lib/python314.zip', 'rb') for _ in range(50)]",
    "b = [bytes(10**6) for _ in range(50)]",
    "os.close(0); os.close(1); sys.stdout.close()",
  ];

  test("it finds the same state, the same random numbers and the same descriptors", async () => {
    const first = await python(look, { stdin: "1" });
    expect(first.status).toBe("ok");
    for (const endings of ["", "\n1 / 0", "\nos._exit(1)", "\nwhile True: pass"]) {
      await python(traces.join("\n") + endings, {
        stdin: "left over",
        timeoutMs: endings.includes("while") ? 300 : 20_000,
      });
      const { stdout, stderr } = await python(look, { stdin: "1" });
      expect({ stdout, stderr }).toEqual({ stdout: first.stdout, stderr: "1\n" });
    }
  });

  test("not even by what is left in memory", async () => {
    const secret = "secret = 'se' + 'cret' * 1000\nkept = [secret + str(i) for i in range(5000)]";
    const search = "import gc\nprint(any('secretsecret' in x for x in gc.get_objects() if isinstance(x, str)))";
    await python(secret);
    expect((await python(search)).stdout).toBe("False\n");
  });
});

/** Runs a script instead of the runner, under the same confinement, and gives what it writes to the pipe. */
function underConfinement(script: string): Promise<string> {
  const { command, args } = confine("python", 256);
  const child: ChildProcess = spawn(command, [...args.slice(0, -1), "-e", script], {
    env: {},
    stdio: ["ignore", "ignore", "pipe", "pipe"],
  });
  let text = "";
  (child.stdio[3] as Readable).on("data", (chunk: Buffer) => {
    text += chunk.toString("utf8");
  });
  child.stderr?.on("data", (chunk: Buffer) => {
    text += chunk.toString("utf8");
  });
  return new Promise((resolve) => child.once("close", () => resolve(text)));
}

describe("even a program that runs as the interpreter's process", () => {
  const attempts: Record<string, string> = {
    "cannot read files": "require('fs').readFileSync('/etc/hosts')",
    "cannot read the project": `require('fs').readFileSync(${JSON.stringify(join(import.meta.dirname, "../reward.ts"))})`,
    "cannot write files": "require('fs').writeFileSync('loot', '')",
    "cannot start processes": "require('child_process').spawnSync('ls')",
    "cannot start threads": "new (require('worker_threads').Worker)('1', { eval: true })",
    "cannot evaluate texts": "new Function('return 1')()",
    "cannot reach Node's internals": "process.binding('fs')",
    "cannot open the inspector": "require('inspector').open(0)",
    "has no environment": "if (Object.keys(process.env).length === 0) throw new Error('empty')",
  };
  for (const [name, code] of Object.entries(attempts)) {
    test(name, async () => {
      const attempt = `let said; try { ${code}; said = 'LOOT'; } catch { said = 'refused'; }`;
      const script = `${attempt} require('fs').writeSync(3, said);`;
      expect(await underConfinement(script)).toBe("refused");
    });
  }

  const hasNetworks = (() => {
    try {
      execFileSync("unshare", ["-rn", "true"], { stdio: "ignore" });
      return true;
    } catch {
      return false;
    }
  })();
  test.skipIf(!hasNetworks)(
    "cannot reach the machine's network, where the system gives it one of its own",
    async () => {
      const server = createServer((socket) => socket.end("LOOT")).listen(0, "127.0.0.1");
      await new Promise((resolve) => server.once("listening", resolve));
      const address = server.address();
      const port = typeof address === "object" ? address?.port : 0;
      const script = `require('net').connect(${port}, '127.0.0.1')
      .on('data', (data) => require('fs').writeSync(3, data)).on('error', () => require('fs').writeSync(3, 'refused'));`;
      expect(await underConfinement(script)).toBe("refused");
      server.close();
    },
  );
});

test("waiting programs are all run, one at a time per process", async () => {
  const codes = Array.from({ length: 20 }, (_, i) => `print(${i})`);
  const found = await Promise.all(codes.map((code) => python(code)));
  expect(found.map(({ stdout }) => stdout)).toEqual(codes.map((_, i) => `${i}\n`));
});

test("what a sandbox cannot do is refused before anything runs", async () => {
  await expect(openSandbox({ threads: 0 })).rejects.toThrow("`threads` 0");
  await expect(openSandbox({ memoryMb: 8000 })).rejects.toThrow("8000 MB");
  await expect(python("", { timeoutMs: 0 })).rejects.toThrow("`timeoutMs` 0");
  await expect(python("", { memoryMb: 10 })).rejects.toThrow("from 64 to 256");
  await expect(sandbox.run({ language: "pyton" as "python", code: "", timeoutMs: 1 })).rejects.toThrow('"python"');
});

test("closing a sandbox ends its programs", async () => {
  const other = await openSandbox({ threads: 1 });
  await other.run({ language: "javascript", code: "", timeoutMs: 60_000 }); // its process has started
  const endless = other.run({ language: "javascript", code: "for (;;);", timeoutMs: 60_000 });
  const waiting = expect(other.run({ language: "javascript", code: "", timeoutMs: 60_000 })).rejects.toThrow("closed");
  await new Promise((resolve) => setTimeout(resolve, 300));
  await other.close();
  await waiting;
  await expect(endless).resolves.toMatchObject({ status: "crash" });
});

test("a program that breaks the parser of types does not change the score of later ones", async () => {
  const one = await openSandbox({ threads: 1 });
  try {
    const typescript = (code: string) => one.run({ language: "typescript", code, timeoutMs: 20_000 });
    const good = "const x: number = 1;\nconsole.log(x);";
    expect(await typescript(good)).toMatchObject({ status: "ok", stdout: "1\n" });
    expect(await typescript(`let x: number = ${"(".repeat(2000)}`)).toMatchObject({ status: "crash" });
    expect(await typescript(good)).toMatchObject({ status: "ok", stdout: "1\n" });
    expect(await typescript("let x: number = ;")).toMatchObject({ status: "error", exitCode: 1 });
  } finally {
    await one.close();
  }
});
