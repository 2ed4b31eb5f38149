/**
 * The program that a Python interpreter runs to serve a reward function in verl's signature; `python-lane.ts` is the
 * other end. It is a text because a package of JavaScript ships no Python files, and is handed to `python3 -c`.
 *
 * The first line of its input has the settings, each later one a list of calls; its answers go to what was its standard
 * output, one JSON object per line. Whatever the reward function prints goes to the standard error instead. Sync
 * functions are called one after the other, coroutines run side by side.
 */
export const pythonDriver = String.raw`
import asyncio, importlib.util, inspect, json, math, os, signal, sys, threading, time, traceback

answers = os.fdopen(os.dup(1), "w", encoding="utf-8", newline="\n")
os.dup2(2, 1)
sys.stdout.reconfigure(line_buffering=True)
sys.stdin.reconfigure(encoding="utf-8")
settings = json.loads(sys.stdin.readline())
path, name, kwargs = settings["path"], settings["name"], settings["kwargs"]
is_batch, timeout = settings["isBatch"], settings["timeoutMs"] / 1000


def say(event):
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
    """Numbers of numpy and torch become Python's; JSON has no word for NaN and infinity."""
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
    raise TypeError(f"a value of the type {type(value).__name__} is no reward and no column to log")


def first(value):
    """Of a tuple the first element is the reward, as in verl."""
    return value[0] if isinstance(value, tuple) and value else value


def reward(value):
    return plain([first(item) for item in value] if is_batch and isinstance(value, (list, tuple)) else first(value))


def load():
    sys.path.insert(0, os.path.dirname(path))
    spec = importlib.util.spec_from_file_location("custom_reward_function", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules["custom_reward_function"] = module
    spec.loader.exec_module(module)
    if not callable(getattr(module, name, None)):
        names = [key for key, value in vars(module).items() if inspect.isroutine(value) and not key.startswith("_")]
        return None, {"kind": "missing", "names": names}
    return getattr(module, name), None


def call(function, samples):
    if is_batch:
        columns = ["data_sources", "solution_strs", "ground_truths", "extra_infos"]
        return function(**{column: [s[column[:-1]] for s in samples] for column in columns}, **kwargs)
    return function(**samples[0], **kwargs)


async def finish(id, task):
    done, _ = await asyncio.wait({task}, timeout=timeout)
    if not done:
        task.cancel()
        return say({"kind": "late", "id": id})
    try:
        say({"kind": "value", "id": id, "value": reward(task.result())})
    except BaseException as error:
        say({"kind": "threw", "id": id, "message": describe(error)})


async def serve(function):
    loop, chunks, tasks = asyncio.get_running_loop(), asyncio.Queue(), set()

    def read():
        for line in sys.stdin:
            loop.call_soon_threadsafe(chunks.put_nowait, json.loads(line))
        os._exit(0)  # the program is gone

    threading.Thread(target=read, daemon=True).start()
    say({"kind": "ready"})
    while True:
        calls = await chunks.get()
        say({"kind": "received"})
        for item in calls:
            try:
                value = call(function, item["samples"])
                if inspect.isawaitable(value):
                    say({"kind": "pending", "id": item["id"]})
                    task = asyncio.ensure_future(finish(item["id"], asyncio.ensure_future(value)))
                    tasks.add(task)
                    task.add_done_callback(tasks.discard)
                else:
                    say({"kind": "value", "id": item["id"], "value": reward(value)})
            except BaseException as error:
                say({"kind": "threw", "id": item["id"], "message": describe(error)})


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
    say(problem)
    sys.stdin.read()
`;
