/**
 * The program that a Python interpreter runs to serve a function of a Python file; `python-lane.ts` is the other end.
 * It is a text, handed to `python3 -c`, because a package of JavaScript ships no Python files.
 *
 * The first line of its input has the settings, each later one a list of calls. Its answers go to the original standard
 * output, one JSON object per line; what the function prints goes to the standard error instead. Sync functions are
 * called one after the other, coroutines run side by side. The text `adapter` of the settings may replace `call` (how an
 * input becomes arguments) and `output` (what is taken of a returned value); it reads `adapter_options`.
 */
export const pythonDriver = String.raw`
import asyncio, importlib.util, inspect, json, math, os, signal, sys, threading, time, traceback

answers = os.fdopen(os.dup(1), "w", encoding="utf-8", newline="\n")
os.dup2(2, 1)
sys.stdout.reconfigure(line_buffering=True)
sys.stdin.reconfigure(encoding="utf-8")
settings = json.loads(sys.stdin.readline())
path, name, module_name = settings["path"], settings["function"], settings["module"]
adapter_options, timeout = settings["adapterOptions"], settings["timeoutMs"] / 1000


def report(event):
    answers.write(json.dumps(event) + "\n")
    answers.flush()


def describe(error):
    """What was raised, and the last line of the user's file that it came through."""
    if isinstance(error, SystemExit):
        return f"SystemExit: sys.exit({error.code!r})"
    text = f"{type(error).__name__}: {error}"
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == path]
    return f"{text} ({os.path.basename(path)}:{lines[-1]})" if lines else text


def plain(value):
    """Numbers of numpy and torch become Python's; JSON cannot write NaN and infinity."""
    if isinstance(value, float) and not math.isfinite(value):
        return {"$number": "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"}
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if value is None or isinstance(value, (str, int, float)):
        return value
    if hasattr(value, "tolist"):
        return plain(value.tolist())
    raise TypeError(f"a value of the type {type(value).__name__} is not a number, a text, a list or a dict")


def call(function, input):
    """The keys of the input are the function's keywords."""
    return function(**input)


def output(value):
    return value


exec(settings["adapter"])


def load():
    sys.path.insert(0, os.path.dirname(path))
    spec = importlib.util.spec_from_file_location(module_name, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[module_name] = module
    spec.loader.exec_module(module)
    if not callable(getattr(module, name, None)):
        names = [key for key, value in vars(module).items() if inspect.isroutine(value) and not key.startswith("_")]
        return None, {"kind": "missing", "names": names}
    return getattr(module, name), None


async def finish(id, task):
    done, _ = await asyncio.wait({task}, timeout=timeout)
    if not done:
        task.cancel()
        return report({"kind": "late", "id": id})
    try:
        report({"kind": "value", "id": id, "value": plain(output(task.result()))})
    except BaseException as error:
        report({"kind": "threw", "id": id, "message": describe(error)})


async def serve(function):
    loop, chunks, tasks = asyncio.get_running_loop(), asyncio.Queue(), set()

    def read():
        for line in sys.stdin:
            loop.call_soon_threadsafe(chunks.put_nowait, json.loads(line))
        os._exit(0)  # the program is gone

    threading.Thread(target=read, daemon=True).start()
    report({"kind": "ready"})
    while True:
        calls = await chunks.get()
        report({"kind": "received"})
        for item in calls:
            try:
                value = call(function, item["input"])
                if inspect.isawaitable(value):
                    report({"kind": "pending", "id": item["id"]})
                    task = asyncio.ensure_future(finish(item["id"], asyncio.ensure_future(value)))
                    tasks.add(task)
                    task.add_done_callback(tasks.discard)
                else:
                    report({"kind": "value", "id": item["id"], "value": plain(output(value))})
            except BaseException as error:
                report({"kind": "threw", "id": item["id"], "message": describe(error)})


def guard(most):
    """End the process when it takes too much memory, whatever it is doing."""
    while True:
        with open("/proc/self/statm") as file:
            if int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") > most:
                os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(0.1)


if os.path.exists("/proc/self/statm"):
    threading.Thread(target=guard, args=(settings["memoryMb"] * 2**20,), daemon=True).start()
try:
    function, problem = load()
except SyntaxError as error:
    function, problem = None, {"kind": "syntax", "line": error.lineno, "message": str(error.msg)}
except BaseException as error:
    function, problem = None, {"kind": "unloadable", "message": describe(error)}
if problem is None:
    asyncio.run(serve(function))
else:
    report(problem)
    sys.stdin.read()
`;
