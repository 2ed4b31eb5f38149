"""Replaces `vllm serve` in tests of its health checks: two processes with vLLM's names, and no model.

/health is answered by the process that serves HTTP, /is_paused by the engine behind it. /engine?do=compute or hang keeps
the engine busy, or waiting, for a number of `seconds`. /pids returns the process ids, /environment the variables.
"""

import ctypes
import json
import multiprocessing
import os
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from multiprocessing.connection import Connection
from threading import Lock
from urllib.parse import parse_qs, urlsplit

PR_SET_NAME = 15


def engine(pipe: Connection) -> None:
    """Handle messages one after the other."""
    ctypes.CDLL(None).prctl(PR_SET_NAME, b"VLLM::EngineCore", 0, 0, 0)
    while True:
        what, seconds = pipe.recv()
        end = time.monotonic() + seconds
        if what == "hang":
            time.sleep(seconds)
        while what == "compute" and time.monotonic() < end:
            pass
        if what == "answer":
            pipe.send(False)


class Handler(BaseHTTPRequestHandler):
    """One request."""

    pipe: Connection
    engine_pid = 0
    lock = Lock()

    def do_GET(self) -> None:
        """Answer."""
        url = urlsplit(self.path)
        asked = {name: values[0] for name, values in parse_qs(url.query).items()}
        told: object = {}
        if url.path == "/is_paused":
            with self.lock:
                self.pipe.send(("answer", 0.0))
                told = {"is_paused": self.pipe.recv()}
        if url.path == "/engine":
            self.pipe.send((asked["do"], float(asked["seconds"])))
        if url.path == "/pids":
            told = [os.getpid(), self.engine_pid]
        if url.path == "/environment":
            told = {**json.loads(os.environ["TRAINYARD_WEIGHT_TRANSFER"]), "threads": int(os.environ["OMP_NUM_THREADS"])}
        body = json.dumps(told).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Nothing."""


def main() -> None:
    """Serve until the end."""
    options = dict(zip(sys.argv[1:], sys.argv[2:], strict=False))
    Handler.pipe, other = multiprocessing.Pipe()
    child = multiprocessing.get_context("fork").Process(target=engine, args=(other,), daemon=True)
    child.start()
    Handler.engine_pid = child.pid or 0
    ThreadingHTTPServer((options["--host"], int(options["--port"])), Handler).serve_forever()


if __name__ == "__main__":
    main()
