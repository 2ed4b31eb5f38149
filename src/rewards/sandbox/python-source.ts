/**
 * The Python code that runs in the interpreter besides the program: once before all programs, and around each.
 *
 * None of it is part of the boundary (`python-gate.ts` is). It makes ordinary programs work as they do elsewhere, and
 * lets forbidden calls end with an ordinary exception.
 */

/** Loaded before the memory is copied, so that no program waits for them. */
export const PRELOAD = `
import sys, os, io, re, math, cmath, time, json, copy, enum, heapq, array, types, queue, random, string, struct
import bisect, typing, atexit, decimal, datetime, fractions, operator, calendar, textwrap, itertools, functools
import threading, traceback, statistics, contextlib, collections, collections.abc, dataclasses, unicodedata, asyncio
import hashlib, base64, abc, numbers, warnings, inspect, selectors, concurrent.futures, unittest, zlib, encodings.idna
`;

/** The last step before programs run: removes what belongs to Pyodide, and replaces what WebAssembly lacks. */
export const SETTLE = `
import sys, asyncio, random, threading, time, gc, os

sys.excepthook = sys.__excepthook__
sys.meta_path[:] = [finder for finder in sys.meta_path if "pyodide" not in (getattr(finder, "__module__", None) or "")]
for name in list(sys.modules):
    if name.split(".")[0] in ("js", "pyodide", "pyodide_js", "_pyodide", "_pyodide_core", "micropip"):
        del sys.modules[name]
for name in [name for name in vars(sys.modules["__main__"]) if not name.startswith("__")]:
    del vars(sys.modules["__main__"])[name]
os.environ.clear()
sys.path[:] = [place for place in sys.path if place.endswith(".zip")]

# There are no threads: a thread runs to its end when it is started.
def start(self):
    if self._target is not None and getattr(self._target, "__module__", "") == "concurrent.futures.thread":
        raise RuntimeError("can't start new thread")
    if self._started.is_set():
        raise RuntimeError("threads can only be started once")
    self._started.set()
    try:
        self.run()
    except SystemExit:
        pass
    except BaseException as error:
        threading.excepthook(threading.ExceptHookArgs((type(error), error, error.__traceback__, self)))

threading.Thread.start = start
threading.Thread.join = lambda self, timeout=None: None
threading.Thread.is_alive = lambda self: False

# An event loop without sockets: it sleeps until its next timer.
class Sleeper:
    def select(self, timeout=None):
        if timeout is None:
            raise RuntimeError("nothing will ever happen: the event loop waits for something outside the sandbox")
        if timeout > 0:
            time.sleep(timeout)
        return []
    def close(self):
        pass

class Loop(asyncio.BaseEventLoop):
    def __init__(self):
        super().__init__()
        self._selector = Sleeper()
    def _process_events(self, events):
        pass
    def _write_to_self(self):
        pass

class Policy(asyncio.events._BaseDefaultEventLoopPolicy):
    _loop_factory = Loop

asyncio.events._set_running_loop(None)
asyncio.events._set_event_loop_policy(Policy())
asyncio.run = asyncio.runners.run
time.sleep = getattr(time.sleep, "__wrapped__", time.sleep)

sys.tracebacklimit = 100  # an error a million calls deep is printed at once, too
sys.modules["ctypes"] = sys.modules["_ctypes"] = None
random.seed(0)
gc.collect()
gc.freeze()
`;

/** After the program: what a Python process does when it ends. */
export const FINISH = `
import atexit, sys
try:
    atexit._run_exitfuncs()
finally:
    for stream in (sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__):
        try:
            stream.flush()
        except Exception:
            pass
`;

/**
 * Calls a function of the program; `answer` is what it returned, as JSON. JSON texts are Python literals, too. Keys
 * in JSON are texts, so integer keys of a first argument are converted back, as in verl.
 */
export function callSource(name: string, args: readonly string[]): string {
  return `
import json, __main__
name = ${JSON.stringify(name)}
args = [json.loads(text) for text in ${JSON.stringify(args)}]
if args and isinstance(args[0], dict):
    try:
        args[0] = {int(key): value for key, value in args[0].items()}
    except ValueError:
        pass
scope = vars(__main__)
if name in scope:
    target = scope[name]
elif "Solution" in scope:
    target = getattr(scope["Solution"](), name)
else:
    raise NameError("the program has no function " + repr(name))
answer = json.dumps(target(*args))
`;
}
