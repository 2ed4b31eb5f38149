"""A Ray actor around a server of vLLM, which runs as a process of its own, of a Python of its own if need be.

The actor starts it, says where it listens, and tells of its end, or that it is frozen; requests go to it over HTTP. It
has a place of its own in the cluster, or it stands on the node of workers, takes nothing of Ray's and uses their GPUs.
"""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import threading
import time
from collections import deque
from typing import Any

import ray

from . import frames
from .host import interface_of
from .manifest import check_manifest
from .pulse import DIRECT, Pulse, ServerLost
from .refusal import Refusal

Message = dict[str, Any]
_PREFIX = re.compile(r"^(\(\w+ pid=\d+\) )?([A-Z]+ \S+ \S+ \[[^\]]*\] )?")
_ERROR = re.compile(r"^[\w.]*(Error|Exception)\b")
_FIND = "import importlib.util as u, sys; sys.exit(0 if u.find_spec('vllm') else 1)"


def place_beside(workers: list[Message], parallel: int, make: Any, *given: Any) -> list[Any]:
    """An actor for each server: on GPUs one for every `parallel` workers of a node, else one on each node."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    nodes: dict[str, list[str]] = {}
    for worker in workers:
        nodes.setdefault(worker["node"], []).extend(str(gpu) for gpu in worker["gpus"])
    hosts = []
    for node, gpus in nodes.items():
        strategy = NodeAffinitySchedulingStrategy(node, soft=False)
        shares = [gpus[i : i + parallel] for i in range(0, len(gpus), parallel)] or [[]]
        hosts += [make.options(scheduling_strategy=strategy, num_cpus=0).remote(*given, share) for share in shares]
    return hosts


class VllmHost:
    """What runs in the actor's process."""

    def __init__(self, python: str | None, is_local: bool, gpus: list[str] | None = None) -> None:
        """`gpus` are those of workers, if any; without, it has what Ray gives it."""
        self._python = python or sys.executable
        self._is_local = is_local
        self._shared_gpus = gpus
        self._process: subprocess.Popen[bytes] | None = None
        self._said: deque[str] = deque(maxlen=1000)
        self._pulse: Pulse | None = None
        self._is_started = threading.Event()

    def describe(self) -> Message:
        """Who and where it is."""
        context = ray.get_runtime_context()
        return {"pid": os.getpid(), "host": socket.gethostname(), "node": context.get_node_id()}

    def has_vllm(self) -> bool:
        """Whether this machine's Python has vLLM."""
        try:
            return subprocess.run([self._python, "-c", _FIND], capture_output=True, check=False).returncode == 0
        except OSError as error:
            raise Refusal(
                f"{self._python} (TRAINYARD_VLLM_PYTHON) cannot be run on the machine {socket.gethostname()}: "
                f"{error.strerror}. Name a Python that every node of the cluster has under this path."
            ) from error

    def call(self, verb: str, data: bytes) -> bytes:
        """Do what a message asks; what the user can put right comes back as `refused`."""
        try:
            return frames.pack({"ok": getattr(self, f"_{verb}")(frames.unpack(data))})
        except Refusal as refusal:
            return frames.pack({"refused": str(refusal)})

    def park(self) -> None:
        """Ends, by an error that says how, when the server does or is frozen."""
        self._is_started.wait()
        assert self._process is not None and self._pulse is not None
        while True:
            try:
                code = self._process.wait(self._pulse.pause)
                raise ServerLost(f"vLLM {_ending(code)}. {self._last_words()}")
            except subprocess.TimeoutExpired:
                if (complaint := self._pulse.feel()) is not None:
                    raise ServerLost(complaint) from None

    def ping(self) -> None:
        """Returns at once, unless the process is stopped."""

    # ------------------------------------------------------------ verbs

    def _start(self, a: Message) -> Message:
        """Start the server and wait until it answers; the result is its address."""
        self._check_nccl(a["line"]["nccl"])
        host = "127.0.0.1" if self._is_local else ray.util.get_node_ip_address()
        with socket.socket() as probe:
            probe.bind((host, 0))
            port = probe.getsockname()[1]
        keeper = os.path.join(os.path.dirname(os.path.abspath(__file__)), "keeper.py")
        serve = [self._python, "-m", "vllm.entrypoints.cli.main", "serve", a["folder"]]
        place = ["--host", host, "--port", str(port), "--middleware", "trainyard_worker.guard.Guard"]
        place += ["--worker-extension-cls", "trainyard_worker.receiver.Receiver"]
        self._process = subprocess.Popen(
            [sys.executable, "-P", keeper, *serve, *place, *a["options"]],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=self._environment(a),
        )
        threading.Thread(target=self._listen, daemon=True).start()
        address = f"http://{host}:{port}"
        self._wait(address, a["timeout"])
        self._pulse = Pulse(address, a["key"], self._process.pid, a["silence"])
        self._is_started.set()
        return {"url": address}

    @staticmethod
    def _verify(a: Message) -> Message:
        """Check that this machine sees a folder as it was written."""
        check_manifest(a["folder"])
        return {}

    # ------------------------------------------------------------ small things

    def _check_nccl(self, theirs: str | None) -> None:
        """Refuse another version than that of the workers, who send weights over it; null if they do not."""
        if theirs is None:
            return
        tell = [self._python, "-c", "import torch; print(torch.cuda.nccl.version())"]
        ours = subprocess.run(tell, capture_output=True, check=False, text=True).stdout.strip() or "none"
        if ours != theirs:
            raise Refusal(
                f"vLLM on the machine {socket.gethostname()} has NCCL {ours} and the workers have {theirs}, but they "
                "send it weights. Install vLLM in the workers' Python (TRAINYARD_PYTHON), or let its servers share "
                "the workers' GPUs: actor_rollout_ref.rollout.nnodes=0."
            )

    def _environment(self, a: Message) -> dict[str, str]:
        package = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
        paths = [package, *filter(None, [os.environ.get("PYTHONPATH")])]
        own = {"VLLM_SERVER_DEV_MODE": "1", "TRAINYARD_SERVER_KEY": a["key"], "PYTHONPATH": os.pathsep.join(paths)}
        line = {"TRAINYARD_LINE": json.dumps(a["line"])}
        interface = interface_of(ray.util.get_node_ip_address())
        gloo = {} if interface is None else {"GLOO_SOCKET_IFNAME": interface}
        return {**a["env"], **gloo, **os.environ, **own, **line, **self._shared()}

    def _shared(self) -> dict[str, str]:
        """What it uses of the workers' node; of its own Ray has told it."""
        if self._shared_gpus is None:
            return {}
        if self._shared_gpus:
            return {"CUDA_VISIBLE_DEVICES": ",".join(self._shared_gpus)}
        return {"OMP_NUM_THREADS": str(os.cpu_count())}  # an actor without processors is given one thread

    def _listen(self) -> None:
        assert self._process is not None and self._process.stdout is not None
        for line in self._process.stdout:
            self._said.append(line.decode(errors="replace").rstrip())

    def _wait(self, address: str, timeout: float) -> None:
        assert self._process is not None
        deadline = time.monotonic() + timeout
        where = f"vLLM on the machine {socket.gethostname()}"
        while time.monotonic() < deadline:
            if (code := self._process.poll()) is not None:
                time.sleep(0.2)  # for its last words
                raise Refusal(f"{where} {_ending(code)} while it started. {self._last_words()}")
            try:
                with DIRECT.open(f"{address}/health", timeout=5):
                    return
            except OSError:
                time.sleep(0.25)
        assert self._process.stdin is not None
        self._process.stdin.close()
        raise Refusal(
            f"{where} did not start within {timeout:.0f} s (trainer.ray_wait_register_center_timeout). "
            f"{self._last_words()}"
        )

    def _last_words(self) -> str:
        """The line of what it said that tells most."""
        said = [_PREFIX.sub("", line).strip() for line in self._said if " WARNING " not in line]
        # An error in one of its processes ends the others, which point to it.
        causes = [line for line in said if _ERROR.match(line) and "root cause" not in line]
        errors = [line for line in said if "Error" in line]
        last = (causes or errors or [line for line in said if line] or ["nothing"])[-1]
        return f"It last said: {last[:500]}"


def _ending(code: int) -> str:
    """How the keeper, or the command as the keeper tells it, has ended."""
    number = -code if code < 0 else code - 128
    return f"was ended by signal {number}" if number > 0 else f"ended with exit code {code}"
